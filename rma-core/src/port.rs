//! UDP ports: which service of a host a frame belongs to (not in the paper, whose NIC serves 1RMA
//! and nothing else).
//!
//! A service has the same port on every host of a deployment, and sends to the port that it listens
//! on. The source port carries entropy only and is no [`Port`].

use core::fmt;

use thiserror::Error;

/// A UDP port that a service listens on. As one of [`Ports`] it is not 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Port(pub u16);

impl Port {
    /// The port of 1RMA, if no other is configured.
    pub const ONE_RMA: Self = Self(10_472);
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The most ports that a host listens on: the steering program compares a frame with each of them.
pub const PORTS_MAX: usize = 8;

/// The ports that a host listens on: at least one, each once, none of them 0.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Ports {
    /// Those that are left over are 0.
    numbers: [u16; PORTS_MAX],
}

impl Ports {
    /// These ports, in this order.
    ///
    /// # Errors
    /// If there is none, if there are more than [`PORTS_MAX`], if one is 0, or if one comes twice.
    pub fn new(ports: &[Port]) -> Result<Self, PortsError> {
        if ports.is_empty() {
            return Err(PortsError::NoPort);
        }
        if ports.len() > PORTS_MAX {
            return Err(PortsError::TooMany { count: ports.len(), max: PORTS_MAX });
        }
        let mut numbers = [0; PORTS_MAX];
        for (index, port) in ports.iter().enumerate() {
            if port.0 == 0 {
                return Err(PortsError::Zero);
            }
            if ports[..index].contains(port) {
                return Err(PortsError::Twice { port: *port });
            }
            numbers[index] = port.0;
        }
        Ok(Self { numbers })
    }

    /// Whether `port` is one of them.
    #[inline]
    #[must_use]
    pub fn contains(&self, port: Port) -> bool {
        // All are compared: that is a few instructions without a branch, however many there are.
        let found = self.numbers.iter().fold(false, |found, &number| found | (number == port.0));
        found & (port.0 != 0)
    }

    /// The ports, in the order that they were named in.
    pub fn iter(&self) -> impl Iterator<Item = Port> + use<> {
        self.numbers.into_iter().take_while(|&number| number != 0).map(Port)
    }

    /// The numbers of the ports, and zeroes for those that are left over.
    #[must_use]
    pub const fn numbers(&self) -> [u16; PORTS_MAX] {
        self.numbers
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, port) in self.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{port}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Why a host cannot listen on the ports that it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PortsError {
    /// There is none.
    #[error("no UDP port is named: a host listens on one at least")]
    NoPort,
    /// One is 0.
    #[error("UDP port 0 cannot be listened on: choose one from 1 to 65535")]
    Zero,
    /// One comes twice.
    #[error("UDP port {port} is named twice: give each service a port of its own")]
    Twice {
        /// The port.
        port: Port,
    },
    /// There are too many.
    #[error("{count} UDP ports are named, and a host listens on {max} at most: name fewer")]
    TooMany {
        /// How many were named.
        count: usize,
        /// How many there may be.
        max: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_kept_in_order_and_found_again() {
        let ports = Ports::new(&[Port(9), Port(7)]).unwrap();
        assert!(ports.iter().eq([Port(9), Port(7)]));
        assert_eq!(ports.numbers(), [9, 7, 0, 0, 0, 0, 0, 0]);
        assert_eq!(ports.to_string(), "9, 7");
        for number in [0, 7, 8, 9, u16::MAX] {
            assert_eq!(ports.contains(Port(number)), number == 7 || number == 9, "{number}");
        }
        let eight: Vec<Port> = (1..=8).map(Port).collect();
        assert!(Ports::new(&eight).unwrap().iter().eq(eight));
    }

    #[test]
    fn ports_that_nobody_can_listen_on_are_refused_with_what_to_do() {
        let nine: Vec<Port> = (1..=9).map(Port).collect();
        for (ports, error, text) in [
            (&[][..], PortsError::NoPort, "one at least"),
            (&[Port(5), Port(0)], PortsError::Zero, "from 1 to 65535"),
            (&[Port(5), Port(6), Port(5)], PortsError::Twice { port: Port(5) }, "port 5 is named"),
            (&nine, PortsError::TooMany { count: 9, max: 8 }, "8 at most"),
        ] {
            assert_eq!(Ports::new(ports), Err(error));
            assert!(error.to_string().contains(text), "{error}");
        }
    }
}
