//! The peer at the other end of a connection, as the transport has verified it.
//!
//! What a peer says of itself beyond this is a claim: an initiator's address is believed if it is
//! the connection's own or a rule lists it, and a PID is believed, as K_d is bound to it and is
//! useless to whoever cannot send as that process (§4.2).

use core::{fmt, str::FromStr};

use rma_core::addr::HostAddr;

use crate::{identity::SpiffeId, limits::SERIAL_LEN_MAX, time::WallTime};

/// A peer that a transport has authenticated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The identity in its certificate.
    pub identity: SpiffeId,
    /// The serial number of that certificate.
    pub serial: Serial,
    /// When that certificate ends: nothing is given to its holder afterwards.
    pub not_after: WallTime,
    /// The connection's other end.
    pub address: HostAddr,
}

/// The serial number of a certificate, without the zeros that it may begin with.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Serial(Box<[u8]>);

/// The reason why octets or digits are no serial number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SerialError {
    /// Too long.
    #[error("a serial number of {len} octets; certificates have at most {SERIAL_LEN_MAX}")]
    Length {
        /// Its length in octets.
        len: usize,
    },
    /// Not pairs of hexadecimal digits.
    #[error("it is not an even number of hexadecimal digits, such as \"0a1b\"")]
    Digits,
}

impl Serial {
    /// The number with these octets, the most significant first.
    ///
    /// # Errors
    /// If there are more than [`SERIAL_LEN_MAX`], zeros at the beginning aside.
    pub fn new(octets: &[u8]) -> Result<Self, SerialError> {
        let zeros = octets.iter().take_while(|&&octet| octet == 0).count();
        let octets = &octets[zeros..];
        if octets.len() > SERIAL_LEN_MAX {
            return Err(SerialError::Length { len: octets.len() });
        }
        Ok(Self(octets.into()))
    }
}

impl FromStr for Serial {
    type Err = SerialError;

    /// From hexadecimal digits, as `openssl x509 -serial` shows them.
    fn from_str(text: &str) -> Result<Self, SerialError> {
        let digits: Option<Vec<u8>> =
            text.chars().map(|it| it.to_digit(16).map(|digit| digit as u8)).collect();
        let digits = digits.filter(|it| it.len() % 2 == 0 && !it.is_empty());
        let digits = digits.ok_or(SerialError::Digits)?;
        let octets: Vec<u8> = digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect();
        Self::new(&octets)
    }
}

impl fmt::Display for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("00");
        }
        self.0.iter().try_for_each(|octet| write!(f, "{octet:02x}"))
    }
}

impl fmt::Debug for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_serial_number_is_the_same_however_it_is_written() {
        let serial: Serial = "000A1b".parse().unwrap();
        assert_eq!(serial, Serial::new(&[0, 0, 0, 0x0a, 0x1b]).unwrap());
        assert_eq!(serial.to_string(), "0a1b");
        assert_eq!(Serial::new(&[0]).unwrap().to_string(), "00");
        for bad in ["", "a", "0x", "0a 1", "é"] {
            assert_eq!(bad.parse::<Serial>(), Err(SerialError::Digits), "{bad}");
        }
        assert_eq!(Serial::new(&[1; 21]), Err(SerialError::Length { len: 21 }));
        assert!(Serial::new(&[[0; 1].as_slice(), &[1; 20]].concat()).is_ok());
    }
}
