//! Errors of octets that are no message.
//!
//! Every error names the field and, where it is no secret, the value. It is told to the peer by the
//! field's name alone.

use core::fmt;

use rma_core::addr::HostAddr;

use crate::{
    limits::{MESSAGE_LEN_MAX, VERSION},
    name::NameError,
};

/// The field of a message: its name in the CDDL, and in which entry of a list it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The list that it is in and the number of its entry, from 0.
    pub entry: Option<(&'static str, usize)>,
    /// Its own name, or that of what is in an entry of a map in it.
    pub name: &'static str,
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((list, number)) = self.entry {
            write!(f, "{list}[{number}].")?;
        }
        f.write_str(self.name)
    }
}

/// The reason why octets are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// No message is that long, or that short.
    #[error("a message of {len} octets; messages have 1 to {MESSAGE_LEN_MAX}")]
    Length {
        /// How long it is, or says to be.
        len: usize,
    },
    /// Another version of the protocol.
    #[error("version {version}; this is version {VERSION}")]
    Version {
        /// The version that it says.
        version: u64,
    },
    /// The octets end within a field.
    #[error("{field}: cut off, the message ends at octet {at}")]
    Truncated {
        /// The field that should be there.
        field: Field,
        /// The offset at which the octets end.
        at: usize,
    },
    /// The field is of another type.
    #[error("{field} is {found}, at octet {at}, and should be {expected}")]
    Type {
        /// The field.
        field: Field,
        /// Its offset.
        at: usize,
        /// The type that was found.
        found: &'static str,
        /// The expected type.
        expected: &'static str,
    },
    /// A number, or the length of a text, a list, a map or octets, is out of range.
    #[error("{field} is {value}, and should be {expected}")]
    Value {
        /// The field.
        field: Field,
        /// Its value, or how long it says to be.
        value: u64,
        /// The expected value.
        expected: &'static str,
    },
    /// A text that is no region's name.
    #[error("{field}: {why}")]
    Name {
        /// The field.
        field: Field,
        /// The fault of the name.
        why: NameError,
    },
    /// An address that no host has.
    #[error("{field} is {address}, which is no address of a host")]
    Address {
        /// The field.
        field: Field,
        /// The address.
        address: HostAddr,
    },
    /// Two addresses of one family.
    #[error("{field}: {address} is the second of IPv{}, and a host has one", address.version())]
    Family {
        /// The list.
        field: Field,
        /// The second address.
        address: HostAddr,
    },
    /// A field that must be there is not.
    #[error("{field} is missing")]
    Missing {
        /// The field.
        field: Field,
    },
    /// The keys of a map do not ascend: two of its fields may be the same one.
    #[error("{field}: key {key} comes after key {after}, and keys ascend")]
    Order {
        /// The map.
        field: Field,
        /// The later key.
        key: u64,
        /// The one before it.
        after: u64,
    },
    /// Something comes after the message.
    #[error("{len} octets follow the message")]
    Trailing {
        /// How many octets do.
        len: usize,
    },
}

impl Malformed {
    /// The field that is wrong, if it is one.
    #[must_use]
    pub const fn field(&self) -> Option<Field> {
        match *self {
            Self::Length { .. } | Self::Version { .. } | Self::Trailing { .. } => None,
            Self::Truncated { field, .. }
            | Self::Type { field, .. }
            | Self::Value { field, .. }
            | Self::Name { field, .. }
            | Self::Address { field, .. }
            | Self::Family { field, .. }
            | Self::Missing { field }
            | Self::Order { field, .. } => Some(field),
        }
    }
}
