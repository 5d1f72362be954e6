//! Two engines over AF_XDP that are looked into, a portal, and a region.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use rma_bench::{
    aead,
    amount::WARM,
    error::{PairError, hint},
    pair::{cores, pin},
};
use rma_core::{
    addr::HostAddr,
    crypto::KeyBinding,
    engine::Engine,
    grant::Grant,
    nic::NicConfigBuilder,
    op::{ClassOfService, OpStatus, OpType},
    portal::{CommandPortal, PortalConfig, ReadOp, WriteOp, portal},
    region::{NicTag, Permissions, RegisteredRegion},
    time::Clock,
};
use rma_lab::{Lab, Netns};
use rma_xdp::{device::xdp::XdpBackend, time::TscClock};

use super::probe::{Phase, Spent, Timed, TimedAead, take, timed, turn};
use crate::bare::{BareNic, PID, engine, register};

/// Command slots: as many ops may be under way.
const SLOTS: u16 = 256;
/// Bytes of an op's place in local memory.
const PLACE: u64 = 4096;

type Looked = Engine<Timed<XdpBackend>, TscClock>;

/// Both hosts.
pub(super) struct Hosts {
    initiator: Looked,
    responder: Looked,
    portal: CommandPortal,
    grants: [Grant; 2],
    local: RegisteredRegion,
    mode: String,
}

impl Hosts {
    pub(super) fn open(lab: &Lab, mtu: u32) -> Result<Self, PairError> {
        let a: (&Netns, HostAddr) = (lab.a(), Lab::A_V4.into());
        let b: (&Netns, HostAddr) = (lab.b(), Lab::B_V4.into());
        // Lives as long as the program, as providers do.
        let aead: &'static TimedAead = Box::leak(Box::new(TimedAead(aead::chosen())));
        let nic = BareNic { mtu, settings: NicConfigBuilder::default(), aead };
        let mut responder = engine(a, b, nic, Timed)?;
        let mut initiator = engine(b, a, nic, Timed)?;
        let everything = Permissions::READ | Permissions::WRITE;
        let (region, _, schedule) = register(&mut responder, WARM, everything);
        let grants = [OpType::Read, OpType::Write].map(|op_type| {
            let binding = KeyBinding { initiator: a.1, responder: b.1, pid: PID, op_type };
            Grant {
                responder: b.1,
                region,
                region_len: WARM,
                initiator: a.1,
                pid: PID,
                op_type,
                key: schedule.derive(&binding),
            }
        });
        let len = u64::from(SLOTS) * PLACE;
        let (id, memory, _) = register(&mut initiator, len, Permissions::NONE);
        let local = RegisteredRegion::new(id, memory, NicTag(1));
        initiator.service_mut().nic_mut().configure_slots(0..SLOTS, Some(PID));
        let (portal, port) = portal(PortalConfig {
            slots: 0..SLOTS,
            pid: PID,
            addresses: a.1.into(),
            bell: None,
            flag: None,
            nic: NicTag(1),
        });
        initiator.service_mut().attach(port);
        let mode = initiator.backend().0.describe().map(ToString::to_string).unwrap_or_default();
        Ok(Self { initiator, responder, portal, grants, local, mode })
    }

    /// Describes the way in which frames pass through the kernel.
    pub(super) fn mode(&self) -> String {
        self.mode.clone()
    }

    /// How often each side has rung its doorbell so far.
    fn doorbells(&self) -> [u64; 2] {
        let rung = |engine: &Looked| engine.backend().0.counters().tx_wakeups.load();
        [rung(&self.initiator), rung(&self.responder)]
    }

    /// Runs `count` ops.
    pub(super) fn round(&mut self, ops: Ops, count: u64) -> Result<Round, PairError> {
        let before = self.doorbells();
        let Self { initiator, responder, portal, grants, local, .. } = self;
        let stop = AtomicBool::new(false);
        let (client_core, server_core) = cores();
        let (op_nanos, spent) = thread::scope(|scope| {
            let serving = scope.spawn(|| {
                pin(server_core);
                while !stop.load(Relaxed) {
                    turn(responder);
                }
                take()
            });
            let issuing = scope.spawn(|| {
                pin(client_core);
                let mut application = Application { portal, grants, local, issued: 0, done: 0 };
                let clock = TscClock::new();
                let start = clock.now();
                while application.done < count {
                    timed(Phase::Application, || application.issue(ops, count))?;
                    turn(initiator);
                    timed(Phase::Application, || application.poll(ops))?;
                }
                Ok::<_, PairError>((clock.now().nanos_since(start), take()))
            });
            let issued = issuing.join();
            stop.store(true, Relaxed);
            let served = serving.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            let issued = issued.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            issued.map(|(took, issuer)| (took, [issuer, served]))
        })?;
        let after = self.doorbells();
        let doorbells = [0, 1].map(|side| after[side] - before[side]);
        Ok(Round { nanos: op_nanos, spent, doorbells })
    }
}

/// Ops of one kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ops {
    /// READ or WRITE.
    pub(super) op_type: OpType,
    /// Bytes of each, at most 4096.
    pub(super) size: u32,
    /// How many are under way, at most 256.
    pub(super) depth: u16,
}

/// The results of a round: initiator first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    /// All of it, in nanoseconds.
    pub(super) nanos: u64,
    /// The time that the thread of each side spent.
    pub(super) spent: [Spent; 2],
    /// System calls for a doorbell on each side.
    pub(super) doorbells: [u64; 2],
}

/// The thread that issues ops and polls their completions.
struct Application<'a> {
    portal: &'a mut CommandPortal,
    grants: &'a [Grant; 2],
    local: &'a RegisteredRegion,
    issued: u64,
    done: u64,
}

impl Application<'_> {
    /// As many ops as may be under way.
    fn issue(&mut self, ops: Ops, count: u64) -> Result<(), PairError> {
        let &mut Self { grants: [read, write], local, .. } = self;
        let Ops { op_type, size: op_size, depth } = ops;
        let class = if depth == 1 { ClassOfService::Latency } else { ClassOfService::Throughput };
        let mut batch = self.portal.batch();
        while self.issued < count && self.issued - self.done < u64::from(depth) {
            let remote_offset = self.issued * PLACE % WARM;
            let place = self.issued % u64::from(SLOTS) * PLACE;
            if op_type == OpType::Read {
                let (grant, sink) = (read, local);
                let sink_offset = place;
                batch.read(&ReadOp { grant, remote_offset, sink, sink_offset, op_size, class })?;
            } else {
                let (grant, source) = (write, local);
                let source_offset = place;
                let op = WriteOp { grant, remote_offset, source, source_offset, op_size, class };
                batch.write(&op)?;
            }
            self.issued += 1;
        }
        Ok(())
    }

    /// The completions that are there, all of which say OK.
    fn poll(&mut self, ops: Ops) -> Result<(), PairError> {
        while let Some(completion) = self.portal.poll() {
            let (op_type, status) = (ops.op_type, completion.status);
            if status != OpStatus::Ok {
                return Err(PairError::Failed { op_type, status, hint: hint(status) });
            }
            self.done += 1;
        }
        Ok(())
    }
}
