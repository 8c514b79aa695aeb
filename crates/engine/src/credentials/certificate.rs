//! The client certificate for a receiver, and its parts that may be shown.
//!
//! [`ClientCertificate`] keeps chain and private key in PEM; only the connection sees the key. [`CertificateSummary`]
//! has the fingerprint and the end of the validity, read directly from the DER encoding.

use std::fmt;

use base64::prelude::{BASE64_STANDARD, Engine};
use posthaste_core::time::Timestamp;
use posthaste_egress::{ClientIdentity, IdentityError};
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

/// A certificate chain, the client's certificate first, and its private key, both in PEM.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientCertificate {
    /// The chain.
    pub certificate: String,
    /// The private key of the first certificate.
    pub private_key: String,
}

/// The parts of a certificate that may be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateSummary {
    /// `sha256:` and the SHA-256 of the certificate in hexadecimal, as other tools print it.
    pub fingerprint: String,
    /// End of its validity, if it can be parsed.
    pub expires_at: Option<Timestamp>,
}

impl ClientCertificate {
    /// Returns the TLS identity for a connection.
    pub fn identity(&self) -> Result<ClientIdentity, IdentityError> {
        ClientIdentity::from_pem(self.certificate.as_bytes(), self.private_key.as_bytes())
    }

    /// Returns the parts that may be shown, or `None` if the PEM contains no certificate.
    pub fn summary(&self) -> Option<CertificateSummary> {
        let der = first_certificate(&self.certificate)?;
        let hash = digest(&SHA256, &der);
        let digits: String = hash.as_ref().iter().map(|b| format!("{b:02x}")).collect();
        Some(CertificateSummary {
            fingerprint: format!("sha256:{digits}"),
            expires_at: expires_at(&der),
        })
    }
}

impl fmt::Debug for ClientCertificate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ClientCertificate(…)")
    }
}

fn first_certificate(pem: &str) -> Option<Vec<u8>> {
    let (_, rest) = pem.split_once("-----BEGIN CERTIFICATE-----")?;
    let (body, _) = rest.split_once("-----END CERTIFICATE-----")?;
    let body: String = body.split_ascii_whitespace().collect();
    BASE64_STANDARD.decode(body).ok()
}

const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const EXPLICIT_VERSION: u8 = 0xa0;

/// Reads the end of the validity (RFC 5280, section 4.1). Skips version, serial number, algorithm and issuer.
fn expires_at(der: &[u8]) -> Option<Timestamp> {
    let (SEQUENCE, certificate, _) = element(der)? else {
        return None;
    };
    let (SEQUENCE, mut rest, _) = element(certificate)? else {
        return None;
    };
    for expected in [EXPLICIT_VERSION, INTEGER, SEQUENCE, SEQUENCE] {
        let (tag, _, after) = element(rest)?;
        // Version 1 omits the version field.
        if tag == expected {
            rest = after;
        } else if expected != EXPLICIT_VERSION {
            return None;
        }
    }
    let (SEQUENCE, validity, _) = element(rest)? else {
        return None;
    };
    let (_, _, not_after) = element(validity)?;
    let (tag, time, _) = element(not_after)?;
    let time = std::str::from_utf8(time).ok()?;
    match tag {
        UTC_TIME => {
            // Two digits mean 1950 to 2049.
            let century = if time.get(..2)? < "50" { "20" } else { "19" };
            parse_time(&format!("{century}{time}"))
        }
        GENERALIZED_TIME => parse_time(time),
        _ => None,
    }
}

/// Reads `YYYYMMDDhhmmssZ`.
fn parse_time(time: &str) -> Option<Timestamp> {
    let part = |from, to| time.get(from..to);
    let (year, month, day) = (part(0, 4)?, part(4, 6)?, part(6, 8)?);
    let (hour, minute, rest) = (part(8, 10)?, part(10, 12)?, part(12, time.len())?);
    let text = format!("{year}-{month}-{day}T{hour}:{minute}:{rest}");
    text.parse().ok()
}

/// Splits off one DER element. Returns its tag, its content and the remaining bytes.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = der.split_first()?;
    let (first, mut rest) = rest.split_first()?;
    let length = match first {
        0..=0x7f => usize::from(*first),
        // No certificate needs more than four bytes of length.
        0x81..=0x84 => {
            let (bytes, after) = rest.split_at_checked(usize::from(first & 0x7f))?;
            rest = after;
            bytes
                .iter()
                .fold(0, |length, byte| length << 8 | usize::from(*byte))
        }
        0x80 | 0x85.. => return None,
    };
    let (inside, after) = rest.split_at_checked(length)?;
    Some((*tag, inside, after))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    fn certificate(until: (i32, u8, u8)) -> ClientCertificate {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(["a.example".to_owned()]).expect("a name");
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(until.0, until.1, until.2);
        let certificate = params.self_signed(&key).expect("a certificate");
        ClientCertificate {
            certificate: format!("a remark\n{}", certificate.pem()),
            private_key: key.serialize_pem(),
        }
    }

    #[test]
    fn fingerprint_and_end_are_read() {
        for (until, expected) in [
            ((2030, 5, 6), "2030-05-06T00:00:00.000Z"),
            ((2049, 12, 31), "2049-12-31T00:00:00.000Z"),
            // From 2050 on, certificates use four-digit years.
            ((2050, 1, 1), "2050-01-01T00:00:00.000Z"),
        ] {
            let glance = certificate(until).summary().expect("a certificate");
            let expires_at = glance.expires_at.map(|at| at.to_string());
            assert_eq!(expires_at.as_deref(), Some(expected));
            let digits = glance.fingerprint.strip_prefix("sha256:").expect("a hash");
            assert_eq!(digits.len(), 64, "{digits}");
        }
    }

    #[test]
    fn the_private_key_belongs_to_it() {
        let mine = certificate((2030, 1, 1));
        assert!(mine.identity().is_ok());
        let mixed = ClientCertificate {
            private_key: certificate((2030, 1, 1)).private_key,
            ..mine
        };
        assert_eq!(mixed.identity().err(), Some(IdentityError::Mismatch));
    }

    proptest! {
        #[test]
        fn rubbish_has_no_end_and_does_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = expires_at(&bytes);
        }

        #[test]
        fn a_damaged_certificate_does_no_harm(at in 0_usize..200, byte in any::<u8>()) {
            let pem = certificate((2030, 1, 1)).certificate;
            let mut der = first_certificate(&pem).expect("a certificate");
            let at = at % der.len();
            der[at] = byte;
            let _ = expires_at(&der);
        }
    }
}
