//! Hosts of one engine or several, joined by memory: no system call, no doorbell.

use std::sync::Arc;

use rma_core::{
    addr::HostAddr,
    crypto::{DerivedRegionKey, EngineId, KeyBinding, RegionKey, RegionKeySchedule, fastest},
    engine::{Engine, HandOvers, Neighbours},
    grant::Grant,
    nic::{KeyRings, Nic, NicConfigBuilder, NicPlace, ReceiveLenMax, RegionEntry},
    one_rma::OneRma,
    op::{OpStatus, OpType},
    portal::{CommandPortal, PortalConfig, portal},
    region::{NicTag, Permissions, RegionNames, RegisteredRegion},
    seat::Seat,
};
use rma_xdp::{Region, time::TscClock};

use crate::{
    memory::{FRAME_LEN, Memory},
    turn::{BATCH, PID, REGION_LEN, SIZE, addresses},
};

pub(crate) const KEY: RegionKey = RegionKey::from_bytes([7; 16]);

/// An engine's ends of what is between it and the others of its host, if it has some. Another
/// thread may take them.
pub(crate) struct Place {
    pub(crate) index: u16,
    engines: u16,
    rings: Option<(Neighbours, KeyRings)>,
}

/// The places of a host of so many engines.
pub(crate) fn places(engines: u16) -> Vec<Place> {
    if engines == 1 {
        return vec![Place { index: 0, engines, rings: None }];
    }
    let seats: Vec<_> = (0..engines).map(|_| Seat::new(None, Arc::default())).collect();
    let rings = Neighbours::connect(&seats).into_iter().zip(KeyRings::connect(&seats));
    (0..).zip(rings).map(|(index, rings)| Place { index, engines, rings: Some(rings) }).collect()
}

/// An engine with the portal that issues at it.
pub(crate) struct Issuer {
    pub(crate) engine: Engine<Memory, TscClock>,
    pub(crate) portal: CommandPortal,
    pub(crate) handed: Arc<HandOvers>,
}

impl Issuer {
    pub(crate) fn new(address: HostAddr, place: Place, end: Memory, clock: &TscClock) -> Self {
        let Place { index, engines, rings } = place;
        let receive_len_max = ReceiveLenMax { ipv4: FRAME_LEN, ipv6: FRAME_LEN };
        let settings = NicConfigBuilder::default().divided(engines).expect("enough for all");
        let place = NicPlace::at(address).with(|it| {
            (it.engine, it.engines) = (EngineId(index), engines);
            it.receive_len_max = receive_len_max;
        });
        let mut nic = Nic::with_aead(settings.build(place).expect("they work"), fastest());
        let neighbours = rings.map(|(neighbours, keys)| {
            nic.regions_mut().set_rings(keys);
            neighbours
        });
        let first = nic.slots().start;
        let slots = first..first + BATCH as u16;
        nic.configure_slots(slots.clone(), Some(PID));
        let mut service = OneRma::new(nic);
        let addresses = address.into();
        let (bell, flag, nic) = (None, None, NicTag(1));
        let (portal, port) = portal(PortalConfig { slots, pid: PID, addresses, bell, flag, nic });
        service.attach(port);
        let engine = Engine::new(service, end, clock.clone());
        match neighbours {
            None => Self { engine, portal, handed: Arc::default() },
            Some(it) => {
                let handed = Arc::clone(it.counts());
                Self { engine: engine.beside(it), portal, handed }
            }
        }
    }

    /// The first region of this engine, which others have `permissions` on, and whose home is the
    /// last engine.
    pub(crate) fn first_region(&mut self, permissions: Permissions) -> RegisteredRegion {
        let home = EngineId(self.engine.service().nic().config().place().engines - 1);
        register(core::slice::from_mut(self), &mut RegionNames::new(8), home, permissions)
    }
}

/// Registers memory at all engines of a host.
pub(crate) fn register(
    host: &mut [Issuer],
    names: &mut RegionNames,
    home: EngineId,
    permissions: Permissions,
) -> RegisteredRegion {
    let memory = Arc::new(Region::new(REGION_LEN).expect("small"));
    register_rows(host, names, &memory, |_| {
        RegionEntry::new(Arc::clone(&memory), &KEY, permissions, PID).at_home(home)
    })
}

/// The same, as the row that `row` makes for each engine.
pub(crate) fn register_rows(
    host: &mut [Issuer],
    names: &mut RegionNames,
    memory: &Arc<Region>,
    mut row: impl FnMut(usize) -> RegionEntry,
) -> RegisteredRegion {
    let name = names.take().expect("one is free");
    for (index, issuer) in host.iter_mut().enumerate() {
        let entry = Box::new(row(index));
        let regions = issuer.engine.service_mut().nic_mut().regions_mut();
        regions.register_as(name, entry).expect("there is room");
    }
    RegisteredRegion::new(name, Arc::clone(memory), NicTag(1))
}

/// A grant to the first of [`addresses`] on a region of the host at `responder`.
pub(crate) fn grant(
    responder: HostAddr,
    region: &RegisteredRegion,
    region_len: usize,
    op_type: OpType,
) -> Grant {
    let [initiator, _] = addresses();
    let binding = KeyBinding { initiator, responder, pid: PID, op_type };
    let key = RegionKeySchedule::new(&KEY).derive(&binding);
    let (region, region_len, pid) = (region.id(), region_len as u64, PID);
    Grant { responder, region, region_len, initiator, pid, op_type, key }
}

/// The key of a grant once its region has this key.
pub(crate) fn key(of_region: &RegionKey, grant: &Grant) -> DerivedRegionKey {
    let &Grant { initiator, responder, pid, op_type, .. } = grant;
    let binding = KeyBinding { initiator, responder, pid, op_type };
    RegionKeySchedule::new(of_region).derive(&binding)
}

/// Issues a READ of 64 bytes.
pub(crate) fn read(portal: &mut CommandPortal, grant: &Grant, local: &RegisteredRegion) {
    portal.read(grant, 0, local, 0, SIZE as u32).expect("a free slot");
}

/// How many ops have ended. All must have succeeded.
pub(crate) fn ended(portal: &mut CommandPortal) -> usize {
    let all = core::iter::from_fn(|| portal.poll());
    all.inspect(|it| assert_eq!(it.status, OpStatus::Ok)).count()
}
