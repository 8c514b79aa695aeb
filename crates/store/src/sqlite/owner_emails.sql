-- Addresses of endpoint owners are confirmed before they get emails. Addresses of before count as confirmed.
ALTER TABLE endpoints ADD COLUMN owner_email_confirmed INTEGER NOT NULL DEFAULT 1;
CREATE INDEX endpoints_by_owner ON endpoints (tenant_no, lower(owner_email)) WHERE owner_email IS NOT NULL;

-- Confirmations that were requested, by tenant and address in lower case. Of the token in the link only the hash is stored.
CREATE TABLE email_confirmations (
    tenant_no INTEGER NOT NULL,
    address TEXT NOT NULL,
    recipient TEXT NOT NULL,
    endpoint BLOB NOT NULL,
    due_at INTEGER,
    tries INTEGER NOT NULL,
    sent_at INTEGER,
    token BLOB UNIQUE,
    expires_at INTEGER NOT NULL,
    UNIQUE (tenant_no, address)
);
CREATE INDEX email_confirmations_due ON email_confirmations (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX email_confirmations_by_address ON email_confirmations (address);
CREATE INDEX email_confirmations_by_end ON email_confirmations (expires_at);

-- Emails to owners, by tenant and day since 1970 (UTC).
CREATE TABLE email_usage (
    tenant_no INTEGER NOT NULL,
    day INTEGER NOT NULL,
    emails INTEGER NOT NULL,
    recipients INTEGER NOT NULL,
    dropped INTEGER NOT NULL,
    UNIQUE (tenant_no, day)
);
CREATE INDEX email_usage_day ON email_usage (day);
