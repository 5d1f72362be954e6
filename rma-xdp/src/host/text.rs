//! A host's configuration from one text, as an argument or a variable of the environment gives it.

use core::str::FromStr;

use rma_core::addr::{HostAddr, Pid};
use thiserror::Error;

use super::HostConfig;
use crate::device::Engines;
#[cfg(feature = "xdp")]
use crate::device::{Device, xdp::Mode};

/// The reason why a text is no [`HostConfig`].
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum HostTextError {
    /// It does not say which device.
    #[error(
        "{text:?} names no device: give xdp:INTERFACE, as xdp:eth1, or udp:ADDRESS, as udp:192.0.2.1"
    )]
    Device {
        /// The text in the place of the device.
        text: Box<str>,
    },
    /// It should be an address of UDP, and is none.
    #[error(
        "{text:?} is no address: give udp:ADDRESS, as udp:192.0.2.1 or udp:2001:db8::1, and a port behind a comma, as udp:192.0.2.1,port=4000; an interface is xdp:INTERFACE"
    )]
    Address {
        /// The text in the place of the address.
        text: Box<str>,
    },
    /// AF_XDP is not there.
    #[error(
        "xdp:{interface} is AF_XDP, and this program is built without it: give udp:ADDRESS, or build it with the feature `xdp`"
    )]
    WithoutXdp {
        /// The interface.
        interface: Box<str>,
    },
    /// There is no such setting.
    #[error("{text:?} is no setting of a host: these are {}", SETTINGS.join(", "))]
    Unknown {
        /// The text in the place of a setting.
        text: Box<str>,
    },
    /// A setting has a value that it cannot have.
    #[error("{setting}={value} of a host: give {wanted}")]
    Value {
        /// The setting.
        setting: &'static str,
        /// Its value.
        value: Box<str>,
        /// The values that it could have.
        wanted: &'static str,
    },
    /// A setting comes twice.
    #[error("{setting}= comes twice: give it once")]
    Twice {
        /// The setting.
        setting: &'static str,
    },
}

/// Settings that may follow the device.
const SETTINGS: [&str; 8] =
    ["address=", "port=", "dscp=", "engines=", "core=", "pid=", "mode=", "state-dir="];

/// From a device, and settings after commas: `xdp:eth1`, `udp:192.0.2.1`,
/// `xdp:eth1,port=4000,core=3`. So an operator says in one argument, or one variable of the
/// environment, which host a service opens. The device may stand without what is before its colon:
/// what is written as an address is UDP's, and all else but `udp` and `xdp` is an interface.
///
/// | setting | is |
/// |---|---|
/// | `address=` | one of [`HostConfig::addresses`]; may come once for each family |
/// | `port=`, `pid=` | [`HostConfig::port`], [`HostConfig::pid`] |
/// | `dscp=` | [`HostConfig::traffic`]: one number, or two as `46/10` |
/// | `engines=` | [`HostConfig::engines`]: a number, or `queues` for one for each queue |
/// | `core=` | one of [`HostConfig::cores`]; may come once for each engine |
/// | `mode=` | of AF_XDP: `auto`, `native`, `native-copy`, `native-zc` or `generic` |
/// | `state-dir=` | [`CounterConfig::state_dir`](crate::config::CounterConfig::state_dir) |
///
/// ```
/// # use rma_xdp::{Host, HostConfig, Pid};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let text = std::env::var("MY_SERVICE_HOST").unwrap_or("udp:127.0.0.49,pid=7".into());
/// let mut config: HostConfig = text.parse()?; // what is not in the text is set as ever:
/// config.nic.command_slots = 256;
/// let host = Host::open(config)?;
/// assert_eq!(host.pid(), Pid(7));
/// # Ok(())
/// # }
/// ```
impl FromStr for HostConfig {
    type Err = HostTextError;

    fn from_str(text: &str) -> Result<Self, HostTextError> {
        let mut parts = text.split(',');
        let mut config = device(parts.next().unwrap_or_default())?;
        let mut seen = Vec::new();
        for part in parts {
            let unknown = || HostTextError::Unknown { text: part.into() };
            let found = SETTINGS.iter().find_map(|it| Some((*it, part.strip_prefix(it)?)));
            let (setting, value) = found.ok_or_else(unknown)?;
            let setting = setting.trim_end_matches('=');
            if !matches!(setting, "address" | "core") && seen.contains(&setting) {
                return Err(HostTextError::Twice { setting });
            }
            seen.push(setting);
            let wrong = |wanted| HostTextError::Value { setting, value: value.into(), wanted };
            let number = |wanted| value.parse::<u32>().ok().ok_or_else(|| wrong(wanted));
            match setting {
                "address" => {
                    let address = value.parse().ok();
                    config.addresses.push(address.ok_or_else(|| wrong("an address of this host"))?);
                }
                "port" => {
                    let port = value.parse().ok().filter(|&port| port > 0);
                    config.port = port.ok_or_else(|| wrong("a UDP port, 1 to 65535"))?;
                }
                "dscp" => {
                    let traffic = value.parse().ok();
                    config.traffic = traffic.ok_or_else(|| {
                        wrong("0 to 63, or two for the latency and the throughput class, as 46/10")
                    })?;
                }
                "engines" if value == "queues" => config.engines = Engines::PerQueue,
                "engines" => {
                    let engines = number("1 to 32, or queues")?;
                    config.engines = Engines::Count(engines);
                }
                "core" => {
                    config.cores.push(number("the number of a core, from 0")? as usize);
                }
                "pid" => config.pid = Pid(number("a number of 32 bits")?),
                "mode" => mode(&mut config, value).ok_or_else(|| {
                    wrong("auto, native, native-copy, native-zc or generic, of AF_XDP alone")
                })?,
                _ if value.is_empty() => return Err(wrong("a directory")),
                _ => config.counter.state_dir = Some(value.into()),
            }
        }
        Ok(config)
    }
}

fn device(text: &str) -> Result<HostConfig, HostTextError> {
    let none = || HostTextError::Device { text: text.into() };
    let udp = |address: &str| {
        let parsed = address.parse::<HostAddr>().ok();
        parsed.map(HostConfig::udp).ok_or_else(|| HostTextError::Address { text: address.into() })
    };
    match text.split_once(':') {
        Some(("udp", "")) => Err(none()),
        Some(("udp", address)) => udp(address),
        Some(("xdp", interface)) if is_interface(interface) => xdp(interface),
        Some(("xdp", _)) => Err(none()),
        // IPv6 addresses have colons, and interfaces' names have none.
        _ => match udp(text) {
            Err(_) if text == "udp" || text == "xdp" => Err(none()),
            Err(_) if is_interface(text) && !is_like_address(text) => xdp(text),
            Err(_) if !is_like_address(text) => Err(none()),
            of_udp => of_udp,
        },
    }
}

/// Whether somebody who writes this means an address: of IPv4, of IPv6, or one with a port or a
/// prefix behind it. A VLAN's interface, as `bed.100`, has a letter and no colon.
fn is_like_address(text: &str) -> bool {
    let is_of = |it: char| it.is_ascii_digit() || it == '.' || it == ':' || it == '/';
    let is_ipv4 = text.contains('.') && text.contains(|it: char| it.is_ascii_digit());
    let is_ipv6 = text.starts_with('[') || text.matches(':').count() > 1;
    is_ipv6 || (is_ipv4 && text.chars().all(is_of))
}

/// Whether Linux lets an interface have this name.
fn is_interface(text: &str) -> bool {
    let is_odd = |it: char| it == '/' || it == ':' || it == '=' || it.is_whitespace();
    !text.is_empty() && !text.contains(is_odd)
}

#[cfg(feature = "xdp")]
#[expect(clippy::unnecessary_wraps, reason = "without AF_XDP it is an error")]
fn xdp(interface: &str) -> Result<HostConfig, HostTextError> {
    Ok(HostConfig::xdp(interface))
}

#[cfg(not(feature = "xdp"))]
fn xdp(interface: &str) -> Result<HostConfig, HostTextError> {
    Err(HostTextError::WithoutXdp { interface: interface.into() })
}

/// `None` if there is no such mode, or the device has none.
#[cfg(feature = "xdp")]
fn mode(config: &mut HostConfig, name: &str) -> Option<()> {
    let wanted = Mode::ALL.into_iter().find(|it| it.name() == name)?;
    let Device::Xdp { mode, .. } = &mut config.device else { return None };
    *mode = wanted;
    Some(())
}

#[cfg(not(feature = "xdp"))]
const fn mode(_: &mut HostConfig, _: &str) -> Option<()> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;

    fn parsed(text: &str) -> HostConfig {
        text.parse().unwrap()
    }

    fn error(text: &str) -> String {
        text.parse::<HostConfig>().unwrap_err().to_string()
    }

    #[test]
    fn an_address_is_a_host_over_udp_with_or_without_the_word() {
        for (text, address) in [
            ("udp:192.0.2.1", "192.0.2.1"),
            ("192.0.2.1", "192.0.2.1"),
            ("udp:2001:db8::1", "2001:db8::1"),
            ("2001:db8::1", "2001:db8::1"),
        ] {
            let config = parsed(text);
            assert!(matches!(config.device, Device::Udp { .. }), "{text}");
            assert_eq!(config.addresses, [address.parse().unwrap()], "{text}");
        }
    }

    #[cfg(feature = "xdp")]
    #[test]
    fn all_else_is_an_interface_for_af_xdp() {
        for text in ["xdp:eth1", "eth1", "xdp:eth1,mode=native-zc"] {
            let Device::Xdp { interface, mode, .. } = parsed(text).device else { panic!("{text}") };
            assert_eq!(&*interface, "eth1", "{text}");
            let wanted = if text.contains("zc") { Mode::NativeZeroCopy } else { Mode::Auto };
            assert_eq!(mode, wanted, "{text}");
        }
        // Ones that are named as if they were something else.
        for name in ["udp", "xdp", "192.0.2.300", "bed.100"] {
            let Device::Xdp { interface, .. } = parsed(&format!("xdp:{name}")).device else {
                panic!("{name}")
            };
            assert_eq!(&*interface, name);
        }
        let Device::Xdp { interface, .. } = parsed("bed.100").device else { panic!() };
        assert_eq!(&*interface, "bed.100");
    }

    #[test]
    fn settings_follow_the_device() {
        let text = "udp:192.0.2.1,port=4000,core=3,pid=7,address=2001:db8::1,dscp=46/10,state-dir=/run/a=b";
        let config = parsed(text);
        assert_eq!(config.traffic.to_string(), "46/10");
        assert_eq!((config.port, &*config.cores, config.pid), (4000, &[3][..], Pid(7)));
        assert_eq!(config.addresses.len(), 2);
        assert_eq!(config.counter.state_dir.unwrap().to_str(), Some("/run/a=b"));
    }

    #[test]
    fn an_error_names_the_wrong_part_and_a_right_one() {
        for (text, told) in [
            ("", "\"\" names no device: give xdp:INTERFACE, as xdp:eth1, or udp:"),
            ("udp", "\"udp\" names no device: give xdp:INTERFACE, as xdp:eth1, or udp:"),
            ("xdp", "\"xdp\" names no device: give xdp:INTERFACE, as xdp:eth1, or udp:"),
            ("udp:", "\"udp:\" names no device"),
            ("udp:eth1", "\"eth1\" is no address: give udp:ADDRESS, as udp:192.0.2.1 or "),
            ("192.0.2.300", "\"192.0.2.300\" is no address: give udp:ADDRESS"),
            ("192.0.2", "\"192.0.2\" is no address: give udp:ADDRESS"),
            ("192.0.2.1:4000", "\"192.0.2.1:4000\" is no address: give udp:ADDRESS"),
            ("udp:192.0.2.1:4000", "\"192.0.2.1:4000\" is no address: give udp:ADDRESS"),
            ("192.0.2.1/24", "\"192.0.2.1/24\" is no address: give udp:ADDRESS"),
            ("[2001:db8::1]:4000", "\"[2001:db8::1]:4000\" is no address: give udp:ADDRESS"),
            ("2001:db8::x", "\"2001:db8::x\" is no address: give udp:ADDRESS"),
            ("xdp:", "\"xdp:\" names no device"),
            ("xdp:eth0:1", "\"xdp:eth0:1\" names no device"),
            ("tcp:192.0.2.1", "\"tcp:192.0.2.1\" names no device"),
            ("port=1", "\"port=1\" names no device"),
            ("udp:192.0.2.1,ports=1", "\"ports=1\" is no setting of a host: these are address=, p"),
            ("udp:192.0.2.1,", "\"\" is no setting"),
            ("udp:192.0.2.1,port=0", "port=0 of a host: give a UDP port, 1 to 65535"),
            ("udp:192.0.2.1,dscp=64", "dscp=64 of a host: give 0 to 63, or two for the latency"),
            ("udp:192.0.2.1,core=x", "core=x of a host: give the number of a core"),
            ("udp:192.0.2.1,pid=4294967296", "pid=4294967296 of a host: give a number of 32 bits"),
            ("udp:192.0.2.1,mode=native", "mode=native of a host: give auto, native, native-copy,"),
            ("udp:192.0.2.1,port=1,port=1", "port= comes twice: give it once"),
            ("udp:192.0.2.1,state-dir=", "state-dir= of a host: give a directory"),
        ] {
            let error = error(text);
            assert!(error.starts_with(told), "{text}: {error}");
        }
    }

    #[cfg(not(feature = "xdp"))]
    #[test]
    fn a_program_without_af_xdp_says_so() {
        assert!(
            error("xdp:eth1").contains("xdp:eth1 is AF_XDP, and this program is built without")
        );
    }
}
