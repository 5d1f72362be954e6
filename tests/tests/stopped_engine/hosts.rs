//! The two hosts, and an initiator that knows what it has under way.

use core::time::Duration;
use std::{path::Path, sync::Arc};

use rma_lab::Scratch;
use rma_lab::{Entered, Lab, LabConfig};
use rma_tests::hosts::Loopback;
use rma_xdp::{
    Completion, Grant, Host, HostAddr, HostConfig, OpStatus, OpType, Permissions, Pid, Portal,
    Region, RegionKey, RegisteredRegion,
    config::{NicConfigBuilder, Timing},
    crypto::DerivedRegionKey,
    device::{Device, xdp::Mode},
    memory::RegionId,
    ops::{ClassOfService, WriteOp},
};

use super::{
    model::{AREA, AREAS, area},
    peer::wait_for,
};

/// Short, so that many rounds take seconds; long enough for a busy machine to do most ops in time.
pub(crate) const TIMING: Timing = Timing::new(Duration::from_millis(8), Duration::from_millis(20));

/// The PID of all portals.
pub(crate) const PID: Pid = Pid(1001);

/// K_r of the target's region, known to both processes.
pub(crate) const KEY: RegionKey = RegionKey::from_bytes([0x3c; 16]);

/// One of the two hosts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Side {
    Initiator,
    Target,
}

impl Side {
    pub(crate) fn named(name: &str) -> Option<Self> {
        [Self::Initiator, Self::Target].into_iter().find(|side| format!("{side:?}") == name)
    }

    const fn other(self) -> Self {
        match self {
            Self::Initiator => Self::Target,
            Self::Target => Self::Initiator,
        }
    }
}

/// The namespaces of the two hosts.
pub(crate) struct Place {
    pub(crate) network: Network,
    /// `None`: on loopback.
    lab: Option<Lab>,
    /// The message counters of the hosts that this process opens.
    counters: Scratch,
}

impl Place {
    pub(crate) fn loopback() -> Self {
        let Loopback { addresses, port } = Loopback::unused();
        let ports = [port, Loopback::unused().port, Loopback::unused().port];
        Self { network: Network { addresses, ports }, lab: None, counters: Scratch::new() }
    }

    pub(crate) fn lab() -> Self {
        let addresses = [Lab::A_V4, Lab::B_V4].map(HostAddr::from);
        let lab = Some(Lab::new(&LabConfig::default()).unwrap());
        Self { network: Network { addresses, ports: [0; 3] }, lab, counters: Scratch::new() }
    }

    /// Enters the namespace in which a host, or its process, is started.
    pub(crate) fn enter(&self, side: Side) -> Option<Entered<'_>> {
        let lab = self.lab.as_ref()?;
        let netns = match side {
            Side::Initiator => lab.a(),
            Side::Target => lab.b(),
        };
        Some(netns.enter().unwrap())
    }

    /// Opens a host in this process.
    pub(crate) fn open(&self, side: Side) -> Host {
        let _inside = self.enter(side);
        self.network.open(side, self.counters.path())
    }
}

/// The facts that a host must know to be opened, also in another process.
#[derive(Clone, Copy)]
pub(crate) struct Network {
    /// The initiator's and the target's.
    addresses: [HostAddr; 2],
    /// The UDP ports of 1RMA, and of StaR's stateless and stateful processing, on loopback; 0 in
    /// the lab. Other tests of this process have the same addresses.
    pub(crate) ports: [u16; 3],
}

impl Network {
    /// As words, for another process.
    pub(crate) fn words(self) -> String {
        let [initiator, target] = self.addresses;
        let [port, stateless, stateful] = self.ports;
        format!("{initiator} {target} {port} {stateless} {stateful}")
    }

    pub(crate) fn of_words([initiator, target, ports @ ..]: [&str; 5]) -> Self {
        let addresses = [initiator, target].map(|address| address.parse().unwrap());
        Self { addresses, ports: ports.map(|port| port.parse().unwrap()) }
    }

    /// The address of one of the two.
    pub(crate) const fn address(self, side: Side) -> HostAddr {
        self.addresses[side as usize]
    }

    /// Opens a host that keeps its message counter in `state_dir`. In the lab, the calling thread
    /// is in its namespace.
    ///
    /// No other host has this directory: one that is stopped may hold the lock on it.
    pub(crate) fn open(self, side: Side, state_dir: &Path) -> Host {
        let mut config = HostConfig::udp(self.address(side));
        config.pid = PID;
        config.nic = NicConfigBuilder::default().with(|it| it.timing = TIMING);
        config.counter.state_dir = Some(state_dir.to_owned());
        if self.ports[0] != 0 {
            config.port = self.ports[0];
            return Host::open(config).unwrap();
        }
        config.device = Device::xdp(Lab::INTERFACE).in_mode(Mode::Native);
        let host = Host::open(config).unwrap();
        host.resolve(self.address(side.other())).unwrap();
        host
    }
}

/// Registers the region that is written to.
pub(crate) fn register(host: &Host) -> RegisteredRegion {
    let all = Permissions::READ | Permissions::WRITE | Permissions::REKEY;
    let memory = Region::new((AREAS * AREA) as usize).unwrap();
    host.register_memory(Arc::new(memory), KEY, all).unwrap()
}

/// A portal to the target's region, and what it has under way.
pub(crate) struct Initiator {
    portal: Portal,
    /// An area for each slot.
    local: RegisteredRegion,
    /// By op type.
    grants: [Grant; OpType::ALL.len()],
    /// By slot: the op that is under way.
    under_way: Vec<Option<(OpType, u64)>>,
}

/// The end of an op.
#[derive(Clone, Copy)]
pub(crate) struct Report {
    pub(crate) op_type: OpType,
    /// The index of the WRITE.
    pub(crate) index: u64,
    pub(crate) completion: Completion,
}

impl Initiator {
    /// With `slots` slots of `host`, for region `region` of the target.
    pub(crate) fn new(host: &Host, network: Network, region: u32, slots: u16) -> Self {
        let grants = OpType::ALL.map(|op_type| {
            let grant = Grant {
                responder: network.address(Side::Target),
                region: RegionId::from_bits(region),
                region_len: AREAS * AREA,
                initiator: network.address(Side::Initiator),
                pid: PID,
                op_type,
                key: DerivedRegionKey::from_bytes([0; 16]),
            };
            grant.under(&KEY)
        });
        let local = host.register(usize::from(slots) * AREA as usize, Permissions::NONE).unwrap();
        let under_way = vec![None; slots.into()];
        Self { portal: host.portal(slots).unwrap(), local, grants, under_way }
    }

    pub(crate) fn outstanding(&self) -> usize {
        self.portal.outstanding()
    }

    pub(crate) fn has_free_slot(&self) -> bool {
        self.portal.next_slot().is_some()
    }

    /// The number of the next op's slot among the portal's, and its place in `local`.
    fn place(&self) -> (usize, u64) {
        let place = self.portal.next_slot().expect("a free slot").0 - self.portal.slots().start;
        (place.into(), u64::from(place) * AREA)
    }

    const fn grant(&self, op_type: OpType) -> Grant {
        self.grants[op_type as usize - 1]
    }

    /// Issues WRITE number `index`.
    pub(crate) fn write(&mut self, index: u64) {
        let (op, bytes) = area(index);
        let (place, local_offset) = self.place();
        self.local.write(local_offset, &bytes).unwrap();
        let op = WriteOp {
            grant: &self.grant(OpType::Write),
            remote_offset: op.remote_offset(),
            source: &self.local,
            source_offset: local_offset + op.offset,
            op_size: op.size,
            class: ClassOfService::ALL[(index % 2) as usize],
        };
        self.portal.issue_write(&op).unwrap();
        self.under_way[place] = Some((OpType::Write, index));
    }

    /// Issues a READ of the first area.
    pub(crate) fn read(&mut self) {
        let (place, local_offset) = self.place();
        let grant = self.grant(OpType::Read);
        self.portal.read(&grant, 0, &self.local, local_offset, AREA as u32).unwrap();
        self.under_way[place] = Some((OpType::Read, 0));
    }

    pub(crate) fn rekey(&mut self, key: RegionKey) {
        let (place, _) = self.place();
        let grant = self.grant(OpType::Rekey);
        self.portal.rekey(&grant, key).unwrap();
        self.under_way[place] = Some((OpType::Rekey, 0));
    }

    /// The next report. No op is reported twice.
    pub(crate) fn poll(&mut self) -> Option<Report> {
        let completion = self.portal.poll()?;
        let place = usize::from(completion.slot.0 - self.portal.slots().start);
        let (op_type, index) = self.under_way[place].take().expect("an op is reported once");
        Some(Report { op_type, index, completion })
    }

    /// Issues an op, the only one under way, until it is OK.
    pub(crate) fn until_ok(&mut self, what: &str, issue: fn(&mut Self)) {
        wait_for(what, || {
            issue(self);
            let status = self.portal.wait().unwrap().status;
            assert_ne!(status, OpStatus::RemoteAuthenticationFailure, "{what}: the key is another");
            status == OpStatus::Ok
        });
    }
}
