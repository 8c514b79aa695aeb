//! Ids and limits of master keys.

use std::fmt;

/// Length of a master key.
pub const KEY_BYTES: usize = 32;
/// Maximum number of master keys.
pub const MAX_KEYS: usize = 32;
pub(super) const KEY_ID_BYTES: usize = 4;

/// Identifies a master key without revealing it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct MasterKeyId(pub(super) [u8; KEY_ID_BYTES]);

impl MasterKeyId {
    /// Returns the id as a number, the form in which the store keeps it.
    pub fn number(self) -> u32 {
        u32::from_be_bytes(self.0)
    }

    /// Returns the id with this number.
    pub fn numbered(number: u32) -> MasterKeyId {
        MasterKeyId(number.to_be_bytes())
    }
}

impl fmt::Display for MasterKeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", u32::from_be_bytes(self.0))
    }
}

impl fmt::Debug for MasterKeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
