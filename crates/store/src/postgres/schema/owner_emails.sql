-- Addresses of endpoint owners are confirmed before they get emails. Addresses of before count as confirmed, and those
-- that nodes of the version before set while they are being replaced.
ALTER TABLE endpoints ADD COLUMN owner_email_confirmed boolean NOT NULL DEFAULT true;
CREATE INDEX endpoints_by_owner ON endpoints (tenant_no, lower(owner_email COLLATE "C")) WHERE owner_email IS NOT NULL;

-- Confirmations that were requested, by tenant and address in lower case. Of the token in the link only the hash is stored.
CREATE TABLE email_confirmations (
    tenant_no bigint NOT NULL,
    address text COLLATE "C" NOT NULL,
    recipient text NOT NULL,
    endpoint uuid NOT NULL,
    due_at bigint,
    tries integer NOT NULL,
    sent_at bigint,
    token bytea UNIQUE,
    expires_at bigint NOT NULL,
    PRIMARY KEY (tenant_no, address)
);
CREATE INDEX email_confirmations_due ON email_confirmations (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX email_confirmations_by_address ON email_confirmations (address);
CREATE INDEX email_confirmations_by_end ON email_confirmations (expires_at);

-- Emails to owners, by tenant and day since 1970 (UTC).
CREATE TABLE email_usage (
    tenant_no bigint NOT NULL,
    day bigint NOT NULL,
    emails bigint NOT NULL,
    recipients bigint NOT NULL,
    dropped bigint NOT NULL,
    PRIMARY KEY (tenant_no, day)
) WITH (fillfactor = 50);
CREATE INDEX email_usage_day ON email_usage (day);
