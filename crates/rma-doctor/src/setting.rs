//! The settings of a kernel that a mend changes, each as a value that can be read, set, and
//! compared.

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::text::quoted;

/// A setting and the value that it is to have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "setting", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Setting {
    /// An offload of an interface: `ethtool -K`.
    Feature {
        /// The interface.
        interface: String,
        /// The kernel's name of the feature, as `rx-lro`.
        name: String,
        /// Whether it is on.
        on: bool,
    },
    /// The length of the receive rings: `ethtool -G`.
    RxRing {
        /// The interface.
        interface: String,
        /// In descriptors.
        length: u32,
    },
    /// The number of queues: `ethtool -L`.
    Channels {
        /// The interface.
        interface: String,
        /// Receive queues that have no transmit queue, if the driver counts them apart.
        rx: Option<u32>,
        /// Transmit queues that have no receive queue, if the driver counts them apart.
        tx: Option<u32>,
        /// Pairs of both, if the driver has them.
        combined: Option<u32>,
    },
    /// The delay of receive interrupts: `ethtool -C`.
    Coalescing {
        /// The interface.
        interface: String,
        /// Whether the driver chooses the delay itself.
        adaptive: bool,
        /// The delay in microseconds.
        rx_usecs: u32,
    },
    /// The queues that packets are spread over evenly: `ethtool -X … equal`.
    RssEqual {
        /// The interface.
        interface: String,
        /// The first so many queues.
        queues: u32,
    },
    /// The fields that decide a datagram's queue: addresses and ports of both sides.
    RssFields {
        /// The interface.
        interface: String,
        /// IPv6 in place of IPv4.
        ipv6: bool,
    },
    /// Energy-efficient Ethernet: `ethtool --set-eee`.
    Eee {
        /// The interface.
        interface: String,
        /// Whether it is on.
        on: bool,
    },
    /// The largest packet: `ip link set … mtu`.
    Mtu {
        /// The interface.
        interface: String,
        /// In bytes, without the Ethernet header.
        mtu: u32,
    },
    /// The administrator's state: `ip link set … up`.
    Up {
        /// The interface.
        interface: String,
        /// Whether it is up.
        up: bool,
    },
    /// A file below `/proc` or `/sys`.
    File {
        /// The path, from the root.
        path: String,
        /// The text that it is to have.
        value: String,
    },
}

impl Setting {
    /// The interface, if it is a setting of one.
    #[must_use]
    pub fn interface(&self) -> Option<&str> {
        match self {
            Self::Feature { interface, .. }
            | Self::RxRing { interface, .. }
            | Self::Channels { interface, .. }
            | Self::Coalescing { interface, .. }
            | Self::RssEqual { interface, .. }
            | Self::RssFields { interface, .. }
            | Self::Eee { interface, .. }
            | Self::Mtu { interface, .. }
            | Self::Up { interface, .. } => Some(interface),
            Self::File { .. } => None,
        }
    }

    /// Whether both are values of one thing.
    #[must_use]
    pub fn is_of_same(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }

    /// The value, as it is told: `off`, `2048`, `rx 4, tx 4`.
    #[must_use]
    pub fn value(&self) -> String {
        match self {
            Self::Feature { on, .. } | Self::Eee { on, .. } => on_off(*on).to_owned(),
            Self::RxRing { length, .. } => length.to_string(),
            Self::Channels { rx, tx, combined, .. } => counts(*rx, *tx, *combined, ", "),
            Self::Coalescing { adaptive: true, rx_usecs, .. } => format!("adaptive, {rx_usecs} us"),
            Self::Coalescing { rx_usecs, .. } => format!("{rx_usecs} us"),
            Self::RssEqual { queues, .. } => format!("{queues} queues"),
            Self::RssFields { .. } => "addresses and ports".to_owned(),
            Self::Mtu { mtu, .. } => mtu.to_string(),
            Self::Up { up, .. } => (if *up { "up" } else { "down" }).to_owned(),
            Self::File { value, .. } => value.clone(),
        }
    }

    /// The command that sets it, as root types it into a shell.
    #[must_use]
    pub fn command(&self) -> String {
        let value = self.value();
        let of = self.interface().map(quoted).unwrap_or_default();
        match self {
            Self::Feature { name, .. } => {
                let known = [("rx-lro", "lro"), ("rx-gro", "gro"), ("rx-vlan-hw-parse", "rxvlan")];
                let known = known.into_iter().find(|(kernels, _)| kernels == name);
                let name = known.map_or_else(|| quoted(name), |(_, ethtools)| ethtools.to_owned());
                format!("ethtool -K {of} {name} {value}")
            }
            Self::RxRing { .. } => format!("ethtool -G {of} rx {value}"),
            Self::Channels { rx, tx, combined, .. } => {
                format!("ethtool -L {of} {}", counts(*rx, *tx, *combined, " "))
            }
            Self::Coalescing { adaptive, rx_usecs, .. } => {
                let adaptive = on_off(*adaptive);
                format!("ethtool -C {of} adaptive-rx {adaptive} rx-usecs {rx_usecs}")
            }
            Self::RssEqual { queues, .. } => format!("ethtool -X {of} equal {queues}"),
            Self::RssFields { ipv6, .. } => {
                format!("ethtool -N {of} rx-flow-hash udp{} sdfn", if *ipv6 { 6 } else { 4 })
            }
            Self::Eee { .. } => format!("ethtool --set-eee {of} eee {value}"),
            Self::Mtu { .. } => format!("ip link set dev {of} mtu {value}"),
            Self::Up { .. } => format!("ip link set dev {of} {value}"),
            Self::File { path, .. } => match path.strip_prefix("/proc/sys/") {
                Some(name) if !name.contains('.') => {
                    let assignment = format!("{}={value}", name.replace('/', "."));
                    format!("sysctl -w {}", quoted(&assignment))
                }
                _ => format!("echo {} > {}", quoted(&value), quoted(path)),
            },
        }
    }
}

/// Names it, without its value.
impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = self.interface().unwrap_or_default();
        match self {
            Self::Feature { name, .. } => write!(f, "{name} of {of}"),
            Self::RxRing { .. } => write!(f, "rx ring of {of}"),
            Self::Channels { .. } => write!(f, "queues of {of}"),
            Self::Coalescing { .. } => write!(f, "rx interrupt delay of {of}"),
            Self::RssEqual { .. } => write!(f, "queues that {of} spreads packets over"),
            Self::RssFields { ipv6, .. } => {
                write!(f, "fields by which {of} spreads UDP over IPv{}", if *ipv6 { 6 } else { 4 })
            }
            Self::Eee { .. } => write!(f, "energy-efficient Ethernet of {of}"),
            Self::Mtu { .. } => write!(f, "MTU of {of}"),
            Self::Up { .. } => write!(f, "state of {of}"),
            Self::File { path, .. } => f.write_str(path),
        }
    }
}

const fn on_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

fn counts(rx: Option<u32>, tx: Option<u32>, combined: Option<u32>, between: &str) -> String {
    let all = [("rx", rx), ("tx", tx), ("combined", combined)];
    let all = all.into_iter().filter_map(|(name, count)| Some(format!("{name} {}", count?)));
    all.collect::<Vec<_>>().join(between)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, value: &str) -> Setting {
        Setting::File { path: path.to_owned(), value: value.to_owned() }
    }

    #[test]
    fn commands_are_what_a_person_types_whatever_an_interface_is_called() {
        let of = |name: &str| name.to_owned();
        let rows = [
            (
                Setting::Feature { interface: of("eth1"), name: of("rx-lro"), on: false },
                "ethtool -K eth1 lro off",
            ),
            (
                Setting::Channels {
                    interface: of("a'b"),
                    rx: Some(2),
                    tx: None,
                    combined: Some(3),
                },
                r"ethtool -L 'a'\''b' rx 2 combined 3",
            ),
            (
                Setting::Coalescing { interface: of("$(x)"), adaptive: false, rx_usecs: 0 },
                "ethtool -C '$(x)' adaptive-rx off rx-usecs 0",
            ),
            (Setting::Mtu { interface: of("e"), mtu: 1500 }, "ip link set dev e mtu 1500"),
            (file("/proc/sys/net/core/bpf_jit_enable", "1"), "sysctl -w net.core.bpf_jit_enable=1"),
            (file("/proc/sys/net/ipv4/conf/e.1/x", "1"), "echo 1 > /proc/sys/net/ipv4/conf/e.1/x"),
            (file("/sys/class/net/a b/y", "2 3"), "echo '2 3' > '/sys/class/net/a b/y'"),
        ];
        for (setting, command) in rows {
            assert_eq!(setting.command(), command);
        }
    }

    #[test]
    fn two_values_of_one_thing_are_told_apart_from_two_things() {
        let mtu = |interface: &str, mtu| Setting::Mtu { interface: interface.to_owned(), mtu };
        assert!(mtu("a", 1).is_of_same(&mtu("a", 2)));
        assert!(!mtu("a", 1).is_of_same(&mtu("b", 1)));
        assert!(!file("/a", "1").is_of_same(&file("/b", "1")));
    }
}
