//! Stories of two NICs: frames are taken out, lost, copied, reordered, changed, and put back by
//! hand.

use core::time::Duration;
use std::sync::Arc;

use rma_shm::Region;

use super::*;
use crate::{
    addr::HostAddr,
    command::{CommandOp, Transfer},
    crypto::{DerivedRegionKey, KeyBinding, RegionKey},
    error::NotSent,
    limits::OP_SIZE_MAX,
    op::{ClassOfService, OpStatus, OpType},
    port::Port,
    region::{Permissions, RegionId},
    wire::FrameView,
};

mod atomics;
mod batch;
mod circular;
mod counter_blocks;
mod gather;
mod learnt_ports;
mod mutation;
mod overload;
mod paths;
mod read;
mod read_order;
mod receive_queues;
mod recorded;
mod recorded_promises;
mod recorded_steps;
mod refusals;
mod regions;
mod rekey;
mod settle;
mod stage;
mod statuses;
mod tables;
mod telemetry;
mod unstarved;

const PID: Pid = Pid(77);
const REGION_LEN: usize = 3 * 4096;

/// A frame on the wire between two NICs.
#[derive(Clone, Debug)]
struct Flight {
    transmit: Transmit,
    bytes: Vec<u8>,
}

struct Host {
    addr: HostAddr,
    nic: Nic,
    region: RegionId,
    memory: Arc<Region>,
    key: RegionKey,
}

impl Host {
    fn new(addr: &str, settings: NicConfigBuilder) -> Self {
        let addr: HostAddr = addr.parse().unwrap();
        Self::at(addr, NicPlace::at(addr), settings)
    }

    fn at(addr: HostAddr, place: NicPlace, settings: NicConfigBuilder) -> Self {
        let config = settings.build(place).unwrap();
        let mut nic = Nic::new(config);
        let memory = Arc::new(Region::new(REGION_LEN).unwrap());
        let key = RegionKey::from_bytes([3; 16]);
        let all = Permissions::READ | Permissions::WRITE | Permissions::REKEY;
        let region = register(&mut nic, &memory, &key, all);
        nic.configure_slots(0..8, Some(PID));
        Self { addr, nic, region, memory, key }
    }

    /// All frames that this host wants to send now.
    fn transmit(&mut self, now: Instant) -> Vec<Flight> {
        let mut flights = Vec::new();
        let mut out = [0; wire::FRAME_LEN_MAX];
        while let Some(transmit) = self.nic.poll_transmit(now, &mut out) {
            assert_eq!(transmit.source, self.addr);
            flights.push(Flight { transmit, bytes: out[..transmit.len].to_vec() });
        }
        flights
    }
}

fn register(
    nic: &mut Nic,
    memory: &Arc<Region>,
    key: &RegionKey,
    permissions: Permissions,
) -> RegionId {
    let entry = RegionEntry::new(memory.clone(), key, permissions, PID);
    nic.regions_mut().register(Box::new(entry)).unwrap()
}

/// An initiator and a responder, and the time.
struct Pair {
    now: Instant,
    a: Host,
    b: Host,
    path_len_max: usize,
}

impl Pair {
    fn new() -> Self {
        Self::with(NicConfigBuilder::default())
    }

    fn with(settings: NicConfigBuilder) -> Self {
        Self::between("192.0.2.1", "192.0.2.2", settings)
    }

    fn between(a: &str, b: &str, settings: NicConfigBuilder) -> Self {
        Self::of(Host::new(a, settings), Host::new(b, settings))
    }

    fn of(a: Host, b: Host) -> Self {
        let now = Instant::from_nanos(1_000);
        let pair = Self { now, a, b, path_len_max: wire::FRAME_LEN_MAX };
        let pattern: Vec<u8> = (0..REGION_LEN).map(|i| ((i * 31) >> 3) as u8).collect();
        pair.b.memory.copy_in(0, &pattern).unwrap();
        pair
    }

    /// K_d of the op type at the other host's region.
    fn key_for(&self, op_type: OpType) -> DerivedRegionKey {
        self.key_under(&self.b.key, op_type)
    }

    fn key_under(&self, key: &RegionKey, op_type: OpType) -> DerivedRegionKey {
        crate::crypto::RegionKeySchedule::new(key).derive(&KeyBinding {
            initiator: self.a.addr,
            responder: self.b.addr,
            pid: PID,
            op_type,
        })
    }

    fn transfer(&self, remote_offset: u64, op_size: u32) -> Transfer {
        Transfer { op_size, remote_offset, local_region: self.a.region, local_offset: 0 }
    }

    fn command(&self, slot: u16, op: CommandOp) -> Command {
        Command {
            slot: CommandSlotId(slot),
            class: ClassOfService::Latency,
            responder: self.b.addr,
            remote_region: self.b.region,
            key: self.key_for(op.op_type()),
            op,
        }
    }

    /// A read from `offset` of the responder's region to the start of the initiator's.
    fn read(&self, slot: u16, offset: u64, op_size: u32) -> Command {
        self.command(slot, CommandOp::Read(self.transfer(offset, op_size)))
    }

    /// A write from the start of the initiator's region to `offset` of the responder's.
    fn write(&self, slot: u16, offset: u64, op_size: u32) -> Command {
        self.command(slot, CommandOp::Write(self.transfer(offset, op_size)))
    }

    fn rekey(&self, slot: u16, key: [u8; 16]) -> Command {
        self.command(slot, CommandOp::Rekey(RegionKey::from_bytes(key)))
    }

    fn issue(&mut self, command: Command) {
        self.a.nic.handle_command(self.now, command).unwrap();
    }

    fn advance(&mut self, by: Duration) {
        self.now = self.now + by;
        self.a.nic.handle_timeout(self.now);
        self.b.nic.handle_timeout(self.now);
    }

    fn requests(&mut self) -> Vec<Flight> {
        self.a.transmit(self.now)
    }

    fn responses(&mut self) -> Vec<Flight> {
        self.b.transmit(self.now)
    }

    fn deliver_to_b(&mut self, flight: &Flight) -> Result<(), DropReason> {
        deliver(&mut self.b.nic, self.now, flight, self.path_len_max)
    }

    fn deliver_to_a(&mut self, flight: &Flight) -> Result<(), DropReason> {
        deliver(&mut self.a.nic, self.now, flight, self.path_len_max)
    }

    /// Moves every frame until there is none.
    fn exchange(&mut self) {
        loop {
            let (requests, responses) = (self.requests(), self.responses());
            if requests.is_empty() && responses.is_empty() {
                return;
            }
            for flight in &requests {
                let _ = self.deliver_to_b(flight);
            }
            for flight in &responses {
                let _ = self.deliver_to_a(flight);
            }
        }
    }

    /// Issues one read, delivers its request, and returns the responses.
    fn responses_of(&mut self, command: Command) -> Vec<Flight> {
        self.issue(command);
        for flight in self.requests() {
            self.deliver_to_b(&flight).unwrap();
        }
        self.responses()
    }

    fn completion(&mut self) -> Completion {
        self.a.nic.poll_completion().expect("an op has completed")
    }

    fn status(&mut self) -> OpStatus {
        let status = self.completion().status;
        assert!(self.a.nic.poll_completion().is_none(), "one completion for one command");
        status
    }

    fn assert_arrived(&self, offset: usize, size: usize) {
        let (mut sent, mut arrived) = (vec![0; size], vec![0; size]);
        self.b.memory.copy_out(offset as u64, &mut sent).unwrap();
        self.a.memory.copy_out(0, &mut arrived).unwrap();
        assert_eq!(sent, arrived);
    }

    fn drops_at_a(&self, reason: DropReason) -> u64 {
        self.a.nic.counters().drops(reason)
    }
}

fn deliver(
    nic: &mut Nic,
    now: Instant,
    flight: &Flight,
    reply_len_max: usize,
) -> Result<(), DropReason> {
    nic.handle_frame(
        now,
        &now,
        RxFrame {
            source_port: flight.transmit.source_port,
            is_first: true,
            is_handed_over: false,
            source: flight.transmit.source,
            destination: flight.transmit.destination,
            port: flight.transmit.port,
            reply_len_max,
            link: None,
            bytes: &mut flight.bytes.clone(),
        },
    )
}
