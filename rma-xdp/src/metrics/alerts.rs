//! Alerts out of a host's metrics, and whether others are served all the same:
//! [`Alert`].

use core::fmt;

use rma_core::addr::HostAddr;

use super::Metrics;
use crate::device::status::{InterfaceState, InterfaceStatus};

/// Something that a host tells about itself and that somebody should look at:
/// [`Metrics::alerts`]. Each is a sentence for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Alert {
    /// The engine has ended, or the host is closed: no op is served or issued.
    EngineDown,
    /// Nobody is reached over the interface.
    InterfaceDown(InterfaceStatus),
    /// Frames on some of the interface's receive queues are lost.
    QueuesUnpolled(InterfaceStatus),
    /// The machine has lost one of the host's addresses.
    AddressLost(HostAddr),
    /// So many mutations may have been applied too late, since the host was opened: P2 was not
    /// kept.
    LateEffects(u64),
    /// So many frames were not sent, as no fresh value of the message counter was left.
    SealsRefused(u64),
    /// So many indexes in rings of portals cannot be: a process writes where it must not.
    ImpossibleIndexes(u64),
}

impl fmt::Display for Alert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EngineDown => f.write_str("the engine has ended, or the host is closed"),
            Self::InterfaceDown(status) | Self::QueuesUnpolled(status) => status.fmt(f),
            Self::AddressLost(address) => {
                write!(f, "{address} is not an address of this machine any more: see `ip addr`")
            }
            Self::LateEffects(count) => write!(
                f,
                "{count} mutations may have been applied after they were reported as failed: the \
                 engine stood still in the middle of a copy"
            ),
            Self::SealsRefused(count) => write!(
                f,
                "{count} frames were not sent, as no value of the message counter was left: is its \
                 directory writable?"
            ),
            Self::ImpossibleIndexes(count) => write!(
                f,
                "{count} indexes in portals' rings cannot be: an application writes where it must not"
            ),
        }
    }
}

impl Metrics {
    /// Returns what somebody should look at; nothing, if all is well.
    #[must_use]
    pub fn alerts(&self) -> Vec<Alert> {
        let mut alerts = Vec::new();
        if !self.engines_are_up() {
            alerts.push(Alert::EngineDown);
        }
        if let Some(status) = &self.device.interface {
            if status.state != InterfaceState::Up {
                alerts.push(Alert::InterfaceDown(status.clone()));
            } else if status.queues_polled < status.queues {
                alerts.push(Alert::QueuesUnpolled(status.clone()));
            }
        }
        let lost = self.device.addresses.iter().filter(|it| !it.is_there);
        alerts.extend(lost.map(|it| Alert::AddressLost(it.address)));
        for (count, alert) in [
            (self.nic.late_effects, Alert::LateEffects as fn(u64) -> Alert),
            (self.nic.seals_refused, Alert::SealsRefused),
            (self.nic.impossible_indexes, Alert::ImpossibleIndexes),
        ] {
            if count > 0 {
                alerts.push(alert(count));
            }
        }
        alerts
    }

    /// Whether the host is open, and none of its engines has ended.
    #[must_use]
    pub fn engines_are_up(&self) -> bool {
        self.engines.iter().all(|it| it.is_up)
    }

    /// Whether other hosts can be reached and served, as far as this is known without asking the
    /// engine: for health checks. Its thread has not ended, the interface is up, and an address is
    /// there. An engine that takes no turns, or has no counter values left, is not noticed.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        let addresses = &self.device.addresses;
        let interface = self.device.interface.as_ref();
        self.engines_are_up()
            && interface.is_none_or(|it| it.state == InterfaceState::Up)
            && (addresses.is_empty() || addresses.iter().any(|it| it.is_there))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Host, HostConfig, device::ways::AddressStatus};

    /// Those of a host at the address of loopback that ends with `octet`: one for each test, as
    /// they run side by side.
    fn metrics(octet: u8) -> Metrics {
        Host::open(HostConfig::udp([127, 0, 0, octet])).unwrap().metrics()
    }

    fn interface(state: InterfaceState, queues_polled: u32) -> Option<InterfaceStatus> {
        Some(InterfaceStatus {
            interface: "eth1".into(),
            state,
            attachments: 1,
            trouble: None,
            queues: 4,
            queues_polled,
            device: "AF_XDP".into(),
        })
    }

    fn told(metrics: &Metrics) -> Vec<String> {
        metrics.alerts().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_host_that_is_well_has_no_alerts() {
        let mut metrics = metrics(50);
        assert_eq!((told(&metrics), metrics.is_healthy()), (vec![], true));
        metrics.device.interface = interface(InterfaceState::Up, 4);
        assert_eq!((told(&metrics), metrics.is_healthy()), (vec![], true));
    }

    #[test]
    fn a_host_that_cannot_be_reached_is_not_healthy() {
        let well = metrics(51);
        let mut metrics = well.clone();
        metrics.engines[0].is_up = false;
        let ended = "the engine has ended, or the host is closed";
        assert_eq!((told(&metrics), metrics.is_healthy()), (vec![ended.into()], false));

        let mut metrics = well.clone();
        metrics.device.interface = interface(InterfaceState::Down, 0);
        assert!(told(&metrics)[0].starts_with("interface eth1 is down"));
        assert!(!metrics.is_healthy());

        let mut metrics = well;
        let status =
            |octet, is_there| AddressStatus { address: [192, 0, 2, octet].into(), is_there };
        metrics.device.addresses = vec![status(1, false), status(2, true)];
        let lost = "192.0.2.1 is not an address of this machine any more: see `ip addr`";
        assert_eq!((told(&metrics), metrics.is_healthy()), (vec![lost.into()], true));
        metrics.device.addresses.pop();
        assert!(!metrics.is_healthy());
    }

    #[test]
    fn a_broken_invariant_is_told_and_the_host_serves_on() {
        let mut metrics = metrics(52);
        metrics.device.interface = interface(InterfaceState::Up, 1);
        metrics.nic.late_effects = 2;
        metrics.nic.impossible_indexes = 3;
        let alerts = metrics.alerts();
        let [Alert::QueuesUnpolled(_), Alert::LateEffects(2), Alert::ImpossibleIndexes(3)] =
            &alerts[..]
        else {
            panic!("{alerts:?}")
        };
        let queues = "interface eth1 is up with 1 of its 4 receive queues polled";
        assert_eq!((told(&metrics)[0].as_str(), metrics.is_healthy()), (queues, true));
    }
}
