//! Every number that the baselines do not derive, and the source of each.
//!
//! None is fitted to a figure. Those of which a source gives only the order of magnitude say so;
//! a figure runs with half and one and a half of each, to see what hangs on it.

use core::time::Duration;

/// One entry makes all that there is of a constant, so none can be left out of [`Constant::ALL`].
macro_rules! constants {
    ($($(#[$doc:meta])* $name:ident = $value:literal, $unit:literal, $source:literal;)*) => {
        /// A number that a baseline is made of.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Constant {
            $($(#[$doc])* $name,)*
        }

        impl Constant {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Its value.
            #[must_use]
            pub const fn value(self) -> f64 {
                match self {
                    $(Self::$name => $value,)*
                }
            }

            /// The unit of its value.
            #[must_use]
            pub const fn unit(self) -> &'static str {
                match self {
                    $(Self::$name => $unit,)*
                }
            }

            /// The source of its value.
            #[must_use]
            pub const fn source(self) -> &'static str {
                match self {
                    $(Self::$name => $source,)*
                }
            }

            const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }
        }
    };
}

constants! {
    /// The round trip of an idle 4 KiB read, hosts and their buses included, but no software.
    RoundTrip = 5000.0, "ns", "1RMA §7.4, §7.5";
    /// The most payload of a packet of a connection.
    PacketPayload = 4096.0, "B", "RoCEv2: the largest path MTU";
    /// All other octets of a response packet of a connection.
    PacketOverhead = 86.0, "B",
        "Ethernet 38 with preamble and gap, IPv4 20, UDP 8, BTH 12, AETH 4, ICRC 4";
    /// A read request of a connection, or a refusal.
    RequestLen = 98.0, "B", "as a response packet, with a RETH of 16 in place of the AETH";
    /// The reads of a connection that may be under way.
    ReadsOutstanding = 16.0, "reads", "ConnectX: max_qp_rd_atom";
    /// The connections whose state a NIC holds.
    CachedStates = 450.0, "connections", "StaR §II-B, figure 1: ConnectX-6 Dx";
    /// How long a NIC's pipeline stops for a state that it does not hold.
    StateFetch = 900.0, "ns",
        "one read of host memory over PCIe; order of magnitude: NICs of 2018 took 0.5 to 1 µs";
    /// The time without progress after which a connection goes back.
    Timer = 4.0, "round trips", "1RMA §7.5: TIMEOUT of the system it is compared with";
    /// The most that waits at a port of a switch that drops.
    PortLen = 1_048_576.0, "B", "that of this crate's other networks; order of magnitude: shallow";
    /// The state of a connection in a NIC or in the memory that its cache is filled from.
    ConnectionState = 256.0, "B", "StaR §V-A, of ConnectX-3";
    /// The cores of a host that run the two-sided software.
    Cores = 12.0, "cores",
        "the fewest that keep 100 Gbit/s of 4 KiB reads both ways busy less than three quarters";
    /// The time of a core for a message that it sends or receives.
    MessageTime = 300.0, "ns", "order of magnitude: Snap has 1.7 to 5 million messages/s a core";
    /// The time of a core for a byte of a message.
    ByteTime = 0.2, "ns", "order of magnitude: Snap has some 40 to 80 Gbit/s a core, with one copy";
    /// The most payload of a packet of the software.
    SoftwarePayload = 4096.0, "B", "Snap: an MTU of 5000 B, so 4 KiB in one packet";
    /// All other octets of a packet of the software.
    SoftwareOverhead = 114.0, "B",
        "Ethernet 38, IPv4 20, UDP 8 and 48 of its own: as long as those of this project";
    /// The payload of a request of the software.
    SoftwareRequest = 32.0, "B", "order of magnitude: region, offset, length and an identifier";
    /// The state of a peer in the memory of a host with two-sided software.
    SoftwareState = 1024.0, "B", "order of magnitude: a flow's sequences, timers and window";
}

impl core::fmt::Display for Constant {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(self.name())
    }
}

/// Constants of which one is another.
#[derive(Clone, Debug, PartialEq)]
pub struct Variation {
    /// The one that is.
    pub constant: Constant,
    /// How many times its value it has.
    pub factor: f64,
    /// All of them.
    pub constants: Constants,
}

/// The values that a run has.
#[derive(Clone, Debug, PartialEq)]
pub struct Constants([f64; Constant::ALL.len()]);

impl Default for Constants {
    fn default() -> Self {
        let mut values = [0.0; Constant::ALL.len()];
        for &constant in Constant::ALL {
            values[constant as usize] = constant.value();
        }
        Self(values)
    }
}

impl Constants {
    /// The same, but for one constant that is `factor` of what it is here.
    #[must_use]
    pub fn with(mut self, constant: Constant, factor: f64) -> Self {
        self.0[constant as usize] *= factor;
        self
    }

    /// Half, and one and a half, of each constant alone.
    #[must_use]
    pub fn variations(&self) -> Vec<Variation> {
        let of = |constant, factor| {
            let constants = self.clone().with(constant, factor);
            Variation { constant, factor, constants }
        };
        Constant::ALL.iter().flat_map(|&it| [of(it, 0.5), of(it, 1.5)]).collect()
    }

    /// The value of a constant.
    #[must_use]
    pub const fn get(&self, constant: Constant) -> f64 {
        self.0[constant as usize]
    }

    /// A constant that counts something, of which there is at least one.
    pub(super) fn count(&self, constant: Constant) -> u32 {
        (self.get(constant).round() as u32).max(1)
    }

    /// A constant in nanoseconds.
    pub(super) fn time(&self, constant: Constant) -> Duration {
        Duration::from_nanos(self.get(constant).round() as u64)
    }

    /// The time after which a connection goes back.
    pub(super) fn timer(&self) -> Duration {
        let nanos = self.get(Constant::Timer) * self.get(Constant::RoundTrip);
        Duration::from_nanos(nanos.round() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_constant_has_a_value_and_a_source_and_can_be_changed_alone() {
        let constants = Constants::default();
        for &constant in Constant::ALL {
            assert!(constant.value() > 0.0, "{constant}");
            assert!(!constant.source().is_empty() && !constant.unit().is_empty(), "{constant}");
        }
        let variations = constants.variations();
        assert_eq!(variations.len(), 2 * Constant::ALL.len());
        for Variation { constant, factor, constants } in variations {
            for &other in Constant::ALL {
                let factor = if other == constant { factor } else { 1.0 };
                assert_eq!(constants.get(other), other.value() * factor, "{constant}: {other}");
            }
        }
    }
}
