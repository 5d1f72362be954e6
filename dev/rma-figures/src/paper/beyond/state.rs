//! Bytes of state by the number of peers: of 1RMA at its NIC and in host software, of connections,
//! of StaR at both sides, and of two-sided software.

use rma_bench::drawing::{Axis, Picture, Scale as Places};
use rma_core::{
    addr::{HostAddr, Pid},
    backend::ReceiveLenMax,
    crypto::CounterBlock,
    executor::{CommandExecutor, ExecutorConfig},
    grant::Grant,
    nic::{Nic, NicConfigBuilder, NicPlace},
    portal::{FlagLender, PortalConfig, portal},
    region::NicTag,
};
use rma_sim::baselines::{Constants, RdmaOptions, Service, System, figures::state};
use rma_star::{
    config::{StarConfigBuilder, StarPlace},
    service::Star,
};

use crate::{
    allocator::{self, Asked},
    paper::{
        claims::{Claim, most},
        figure::{About, Figure, FigureFailed, Kind},
        one_rma::simulated::{Axes, one_panel},
        points::{Points, Value},
        run::Run,
    },
};

/// The figure.
#[derive(Debug)]
pub(super) struct State;

const PEERS: [u32; 6] = [1, 10, 100, 1_000, 10_000, 100_000];

const NIC: &str = "1RMA, NIC";
const HOST: &str = "1RMA, host: windows and grants";
const RDMA: &str = "connection RDMA";
const STATELESS: &str = "StaR, stateless side";
const STATEFUL: &str = "StaR, stateful side";
const SOFTWARE: &str = "two-sided software";

/// The most connections of which an engine of StaR is the stateful side.
const CONNECTIONS_MAX: u32 = 65_535;

const ADDR: [u8; 4] = [192, 0, 2, 1];

fn settings(why: impl ToString) -> FigureFailed {
    FigureFailed::Settings(why.to_string())
}

/// Bytes that a NIC takes of the allocator, with default settings. There is nothing to tell it of
/// peers.
fn nic() -> Result<f64, FigureFailed> {
    let place = NicPlace::at(HostAddr::from(ADDR));
    let config = NicConfigBuilder::default().build(place).map_err(settings)?;
    let (asked, nic) = Asked::by(|| Nic::new(config));
    drop(nic);
    Ok(asked.kept() as f64)
}

/// Bytes that an executor with a window for each peer takes, and a grant of each.
fn host(peers: u32) -> Result<f64, FigureFailed> {
    let addresses = HostAddr::from(ADDR).into();
    let flag = Some(FlagLender::new().lend());
    let config =
        PortalConfig { slots: 0..64, pid: Pid(7), addresses, bell: None, flag, nic: NicTag(1) };
    let (portal, _port) = portal(config);
    let config = ExecutorConfig::default().with(|it| it.cc.remotes = peers);
    let (asked, executor) = Asked::by(|| CommandExecutor::new(portal, config));
    drop(executor.map_err(settings)?);
    Ok(asked.kept() as f64 + f64::from(peers) * size_of::<Grant>() as f64)
}

/// Bytes of a StaR engine's tables, with so many connections of which it is the stateful side.
fn star(connections: u32) -> Result<Star, FigureFailed> {
    let mut place = StarPlace::at(HostAddr::from(ADDR));
    place.receive_len_max = ReceiveLenMax::of_mtu(1500);
    let mut config = StarConfigBuilder::default();
    config.connections = connections;
    let config = config.build(place).map_err(settings)?;
    Ok(Star::new(config, CounterBlock::new(0, 1 << 40)))
}

impl Figure for State {
    fn about(&self) -> About {
        About {
            id: "beyond-state",
            title: "State of a host by the number of its peers",
            says: "The NIC of 1RMA and the stateless side of StaR have no state of peers: it is in software, or at the other \
                   side.",
            kind: Kind::Memory,
            seconds: 1,
        }
    }

    fn points(&self, run: &Run<'_>) -> Result<Points, FigureFailed> {
        if !allocator::counts() {
            return Err(settings("this program's allocator does not count"));
        }
        let peers = run.pick(&[PEERS[0], PEERS[3]], &PEERS);
        let mut points = Points::new(
            &self.about(),
            "bytes that the allocator gave to a NIC by default and to an executor with a window for each peer and way, and a \
             grant of each peer; tables of StaR's engine by default, with so many connections, 65,535 at most; models: 256 B a connection, 1 \
             KiB a peer of software",
        );
        let of_star = |bytes: &dyn Fn(&Star) -> usize| {
            let value = |it: u32| Ok(Value::new(it.into(), bytes(&star(it)?) as f64));
            let all = peers.iter().map(|&it| value(it.min(CONNECTIONS_MAX)));
            all.collect::<Result<Vec<_>, FigureFailed>>()
        };
        let of = |bytes: &dyn Fn(u32) -> Result<f64, FigureFailed>| {
            let value = |&it: &u32| Ok(Value::new(it.into(), bytes(it)?));
            peers.iter().map(value).collect::<Result<Vec<_>, FigureFailed>>()
        };
        points.push(NIC, of(&|_| nic())?);
        points.push(HOST, of(&host)?);
        let constants = Constants::default();
        let rdma = System::Rdma(RdmaOptions::lossless(Service::PacketByPacket));
        points.push(RDMA, of(&|it| Ok(state(rdma, &constants, it.into())))?);
        points.push(STATELESS, of_star(&|it| it.stateless_memory())?);
        points.push(STATEFUL, of_star(&|it| it.stateful_memory())?);
        points.push(SOFTWARE, of(&|it| Ok(state(System::Software, &constants, it.into())))?);
        Ok(points)
    }

    fn claims(&self, points: &Points) -> Vec<Claim> {
        let grown = |name: &str| {
            let values = points.of(name);
            let first = values.first().map_or(f64::NAN, |it| it.y);
            most(values.iter().map(|it| it.y / first))
        };
        let flat = |id, says, name| {
            Claim::at_most(id, says, "the most over that with one peer", grown(name), 1.0)
        };
        let each = |name| {
            let values = points.of(name);
            let (first, last) = (values.first(), values.last());
            let all = first.zip(last).filter(|_| values.len() > 1);
            all.map_or(f64::NAN, |(one, all)| (all.y - one.y) / (all.x - one.x))
        };
        vec![
            flat("beyond-state-nic", "the NIC of 1RMA has nothing of a peer", NIC),
            flat("beyond-state-stateless", "nor has the stateless side of StaR", STATELESS),
            Claim::at_most(
                "beyond-state-host",
                "a peer costs host software no more than it costs two-sided software",
                "bytes of a peer more, host of 1RMA, over those of two-sided software",
                each(HOST) / each(SOFTWARE),
                1.0,
            )
            .shape(),
        ]
    }

    fn picture(&self, points: &Points) -> Option<Picture> {
        let axis = |name| Axis { name, scale: Places::Log };
        Some(one_panel(self, points, Axes { x: axis("peers"), y: axis("bytes") }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::one_rma::simulated::tests::{broken, points, with};

    #[test]
    fn a_byte_for_a_peer_is_too_much_at_a_nic() {
        let good = points(
            &State,
            &[
                (NIC, &[[1.0, 1e6], [1e5, 1e6]]),
                (STATELESS, &[[1.0, 1e5], [1e5, 1e5]]),
                (HOST, &[[1.0, 2e5], [1e5, 8e7]]),
                (SOFTWARE, &[[1.0, 1e3], [1e5, 1e8]]),
            ],
        );
        assert!(broken(&State, &good).is_empty());
        let fails = |name, y| broken(&State, &with(&good, name, 1e5, y));
        assert_eq!(fails(NIC, 1.001e6), ["nic"]);
        assert_eq!(fails(STATELESS, 1.001e5), ["stateless"]);
        assert_eq!(fails(HOST, 1.003e8), ["host"]);
    }
}
