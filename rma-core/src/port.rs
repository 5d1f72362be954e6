//! UDP ports: which service of a host a frame belongs to (not in the paper, whose NIC serves 1RMA
//! and nothing else).
//!
//! A service has the same port on every host of a deployment, and sends to the port that it listens
//! on. The source port names no service and is no [`Port`] but a [`SourcePort`].

use core::fmt;

use thiserror::Error;

use crate::time::Instant;

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

/// A UDP source port. It says nothing about the frames in its packet: networks spread packets over
/// their paths by it, and hosts over their receive queues. Frames share packets only if they have
/// the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SourcePort(pub u16);

impl SourcePort {
    /// The first of the dynamic ports (RFC 6335), which reach up to 65535: what hosts choose from.
    pub const FIRST: Self = Self(49_152);

    /// The port of the requests that are sent in the turn that began at `now`. Another in the next
    /// turn, so that a network spreads what a host sends.
    #[inline]
    #[must_use]
    pub const fn of_turn(now: Instant) -> Self {
        // The golden ratio spreads neighbouring instants; its upper bits do so best.
        let spread = now.as_nanos().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 50;
        Self(Self::FIRST.0 + spread as u16)
    }

    /// The port of the answers to requests that came from this port, in the turn that began at
    /// `now`: the same, so that answers to requests that shared a packet can share one, unless it
    /// is none that hosts choose.
    #[inline]
    #[must_use]
    pub const fn answering(self, now: Instant) -> Self {
        if self.0 >= Self::FIRST.0 { self } else { Self::of_turn(now) }
    }
}

impl fmt::Display for SourcePort {
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

/// The reason why a host cannot listen on the ports that it was given.
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
    fn turns_have_source_ports_of_their_own_and_answers_those_of_their_requests() {
        let turns = (0..1_000_u64).map(|turn| Instant::ZERO.after_nanos(turn * 700));
        let ports: Vec<_> = turns.map(SourcePort::of_turn).collect();
        assert!(ports.iter().all(|port| port.0 >= 49_152));
        let different: std::collections::BTreeSet<_> = ports.iter().map(|port| port.0).collect();
        assert!(different.len() > 900, "{} ports in 1000 turns", different.len());
        let now = Instant::ZERO.after_nanos(5);
        for (asked, answered) in [(49_152, 49_152), (65_535, 65_535)] {
            assert_eq!(SourcePort(asked).answering(now), SourcePort(answered));
        }
        for asked in [0, 10_472, 49_151] {
            assert_eq!(SourcePort(asked).answering(now), SourcePort::of_turn(now));
        }
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
