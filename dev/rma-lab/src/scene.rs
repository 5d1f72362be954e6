//! Two hosts that serve 1RMA and an echo, one engine each: the first reads from the other and calls
//! it.

#![expect(clippy::unwrap_used, reason = "what fails here fails a test")]

use std::sync::Arc;

use rma_core::{
    addr::{HostAddr, Pid},
    backend::Backend,
    crypto::{KeyBinding, RegionKey, RegionKeySchedule},
    engine::Engine,
    grant::Grant,
    nic::{Nic, NicConfigBuilder, NicPlace, RegionEntry},
    one_rma::OneRma,
    op::{OpStatus, OpType},
    port::Port,
    portal::{CommandPortal, PortalConfig, portal},
    region::{NicTag, Permissions, RegisteredRegion},
    service::Both,
    time::Clock,
};
use rma_shm::Region;

use crate::echo::Echo;

const PID: Pid = Pid(5);

/// Reads, and calls, in a round: as many as the portal has slots.
const ROUND: usize = 16;
/// Bytes of each read.
const READ: usize = 256;

/// Two services on one engine.
pub type Services = Both<OneRma, Echo>;

/// Makes the services of a host with `address` on these ports: 1RMA on the first, the echo on the
/// second.
fn services(address: HostAddr, ports: [Port; 2]) -> Services {
    let place = NicPlace::at(address).with(|it| it.port = ports[0]);
    let one_rma = OneRma::new(Nic::new(NicConfigBuilder::default().build(place).unwrap()));
    Both::new(one_rma, Echo::new(address.into(), ports[1]))
}

fn register(host: &mut Services, key: &RegionKey, bytes: &[u8]) -> RegisteredRegion {
    let memory = Arc::new(Region::new(bytes.len()).unwrap());
    memory.copy_in(0, bytes).unwrap();
    let entry = RegionEntry::new(memory.clone(), key, Permissions::READ, PID);
    let id = host.first.nic_mut().regions_mut().register(Box::new(entry)).unwrap();
    RegisteredRegion::new(id, memory, NicTag(1))
}

/// The two hosts.
#[derive(Debug)]
pub struct Scene<B, C> {
    /// The hosts' engines.
    pub hosts: [Engine<B, C, Services>; 2],
    addresses: [HostAddr; 2],
    portal: CommandPortal,
    sink: RegisteredRegion,
    grant: Grant,
    source: Vec<u8>,
}

impl<B: Backend, C: Clock + Clone> Scene<B, C> {
    /// Hosts on these devices, with memory of the second that the first may read.
    ///
    /// # Panics
    /// If they cannot be set up.
    pub fn new(backends: [B; 2], addresses: [HostAddr; 2], ports: [Port; 2], clock: &C) -> Self {
        let [mut near, mut far] = addresses.map(|address| services(address, ports));
        let source: Vec<u8> = (0..ROUND * READ).map(|at| (at * 7 / 3) as u8).collect();
        let key = RegionKey::from_bytes([1; 16]);
        let region = register(&mut far, &key, &source);
        let sink = register(&mut near, &key, &vec![0; source.len()]);
        let [initiator, responder] = addresses;
        let binding = KeyBinding { initiator, responder, pid: PID, op_type: OpType::Read };
        let grant = Grant {
            responder,
            region: region.id(),
            region_len: source.len() as u64,
            initiator,
            pid: PID,
            op_type: OpType::Read,
            key: RegionKeySchedule::new(&key).derive(&binding),
        };
        let slots = 0..ROUND as u16;
        near.first.nic_mut().configure_slots(slots.clone(), Some(PID));
        let (portal, port) = portal(PortalConfig {
            slots,
            pid: PID,
            addresses: initiator.into(),
            bell: None,
            flag: None,
            nic: NicTag(1),
        });
        near.first.attach(port);
        let [of_near, of_far] = backends;
        let hosts =
            [Engine::new(near, of_near, clock.clone()), Engine::new(far, of_far, clock.clone())];
        Self { hosts, addresses, portal, sink, grant, source }
    }

    /// The echo of the first host.
    pub const fn echo(&mut self) -> &mut Echo {
        self.hosts[0].service_mut().second.as_mut().expect("there are two services")
    }

    /// Issues a READ of the piece with this number.
    ///
    /// # Panics
    /// If the portal is full.
    pub fn read(&mut self, at: usize) {
        let offset = (at * READ) as u64;
        self.portal.read(&self.grant, offset, &self.sink, offset, READ as u32).unwrap();
    }

    /// A turn of each host. Returns how much there was to do.
    pub fn turn(&mut self) -> usize {
        self.hosts.iter_mut().map(Engine::turn).sum()
    }

    /// Reads and calls at once, again and again, each time until `turns` are enough: every read
    /// ends with the right bytes, every call with its answer.
    ///
    /// # Panics
    /// If one does not.
    pub fn reads_beside_calls(&mut self, mut turns: impl FnMut(&mut Self) -> bool) {
        for round in 0..20 {
            for at in 0..ROUND {
                self.read(at);
                let to = self.addresses[1];
                self.echo().call(to, at as u8, 40 + round + at);
            }
            let mut read = 0;
            while read < ROUND || self.echo().told.len() < ROUND {
                assert!(turns(self), "{read} reads and {:?} in round {round}", self.echo().told);
                while let Some(completion) = self.portal.poll() {
                    assert_eq!(completion.status, OpStatus::Ok);
                    read += 1;
                }
            }
            let mut told = core::mem::take(&mut self.echo().told);
            told.sort_unstable();
            assert!(told.into_iter().eq((0..ROUND).map(|number| (number as u8, true))));
            let mut landed = vec![0; self.source.len()];
            self.sink.memory().copy_out(0, &mut landed).unwrap();
            assert_eq!(landed, self.source);
            self.sink.memory().copy_in(0, &vec![0; landed.len()]).unwrap();
        }
        for host in &self.hosts {
            let counters = host.service().first.nic().counters();
            let drops: Vec<_> = counters.all_drops().collect();
            assert!(drops.is_empty(), "a frame of the echo came to the NIC: {drops:?}");
        }
    }
}
