//! The addresses of a service, as people type them: an address, or a name that is looked up.

use core::{net::SocketAddr, str::FromStr};
use std::net::ToSocketAddrs;

/// The addresses of a service: the one that was typed, or all that a name has, in the order in
/// which they must be tried. At least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses(Vec<SocketAddr>);

/// The reason why a text is no address of a service.
#[derive(Debug, thiserror::Error)]
#[error(
    "{text} is no address and port, and no name that is known with one ({why}): give one such as 192.0.2.1:7471, \
     [2001:db8::1]:7471 or keys.example.org:7471"
)]
pub struct NoAddress {
    text: Box<str>,
    why: Box<str>,
}

impl Addresses {
    /// The one to listen at, or to try first.
    ///
    /// # Panics
    /// Never: there is at least one.
    #[must_use]
    pub fn first(&self) -> SocketAddr {
        *self.0.first().expect("at least one")
    }

    /// All of them.
    #[must_use]
    pub fn into_vec(self) -> Vec<SocketAddr> {
        self.0
    }
}

impl FromStr for Addresses {
    type Err = NoAddress;

    /// Asks the system's resolver, which may take its time.
    fn from_str(text: &str) -> Result<Self, NoAddress> {
        let failed = |why: String| NoAddress { text: text.into(), why: why.into() };
        let found = text.to_socket_addrs().map_err(|error| failed(error.to_string()))?;
        let found: Vec<SocketAddr> = found.collect();
        if found.is_empty() {
            return Err(failed("it has no address".to_owned()));
        }
        Ok(Self(found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_and_a_name_are_both_a_place_and_all_else_says_how_one_looks() {
        for (text, first) in [("192.0.2.1:7471", "192.0.2.1:7471"), ("[::1]:7", "[::1]:7")] {
            assert_eq!(text.parse::<Addresses>().unwrap().first(), first.parse().unwrap());
        }
        let named: Addresses = "localhost:7471".parse().unwrap();
        assert!(named.first().ip().is_loopback() && named.first().port() == 7471);
        for wrong in ["192.0.2.1", "localhost", "", ":x"] {
            let error = wrong.parse::<Addresses>().unwrap_err().to_string();
            assert!(error.contains("192.0.2.1:7471"), "{error}");
        }
    }
}
