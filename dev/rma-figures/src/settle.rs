//! Ops that end with TIMEOUT after their data was sent, and how long it takes to know what became
//! of them.
//!
//! The acknowledgement of every second FETCH_ADD is lost, which was applied, and the data of every
//! other, which was not. Then SETTLE asks. Invariant: each is told what the
//! word says.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::{sync::Arc, thread, time::Duration};

use rma_bench::{
    aead,
    error::PairError,
    failures::Failures,
    interrupt::Interrupt,
    pair::{cores, pin},
};
use rma_core::{
    addr::HostAddr,
    backend::{Backend, RxPacket, TxFrame},
    crypto::KeyBinding,
    engine::Engine,
    grant::Grant,
    nic::NicConfigBuilder,
    portal::{CommandPortal, PortalConfig, portal},
    region::{NicTag, Permissions},
    time::{Clock, Instant},
};
use rma_lab::{Lab, Netns};
use rma_xdp::{
    Completion, OpStatus, OpType, Region, SubmitError,
    config::Timing,
    device::xdp::XdpBackend,
    ops::{OpName, Verdict},
    time::TscClock,
};

use crate::bare::{BareNic, PID, engine, register};

/// The request, or the solicitation, leaves; what its side sends second is lost.
const SECOND: u64 = 2;

/// The observations of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settled {
    /// Ops that were applied, and whose acknowledgement was lost.
    pub applied: u64,
    /// Ops that were not, as their data was lost.
    pub not_applied: u64,
    /// The longest time from an op's TIMEOUT until it was known what had become of it.
    pub slowest: Duration,
    /// The bound of a READ.
    pub read_bound: Duration,
}

/// A backend that loses one frame when it is told to.
#[derive(Debug)]
struct Losing {
    device: XdpBackend,
    /// The frame to lose from now on: 0 for none, 1 for the next.
    lost: Arc<AtomicU64>,
}

impl Backend for Losing {
    fn rx_burst(&mut self, max: usize, on_packets: impl FnMut(&mut [RxPacket<'_>])) -> usize {
        self.device.rx_burst(max, on_packets)
    }

    fn tx_burst(&mut self, max: usize, mut fill: impl FnMut(&mut [TxFrame<'_>]) -> usize) -> usize {
        let Self { device, lost } = self;
        device.tx_burst(max, |frames| {
            let filled = fill(frames);
            for frame in &mut frames[..filled] {
                match lost.load(Relaxed) {
                    0 => {}
                    1 => {
                        frame.transmit = None;
                        lost.store(0, Relaxed);
                    }
                    more => lost.store(more - 1, Relaxed),
                }
            }
            filled
        })
    }

    fn flush(&mut self, now: Instant) {
        self.device.flush(now);
    }
}

/// The side that adds.
struct Initiator {
    engine: Engine<Losing, TscClock>,
    portal: CommandPortal,
    grant: Grant,
    clock: TscClock,
}

impl Initiator {
    /// Issues an op, and turns the engine until it ends.
    fn run(
        &mut self,
        issue: impl FnOnce(&mut CommandPortal, &Grant) -> Result<(), SubmitError>,
    ) -> Result<Completion, PairError> {
        issue(&mut self.portal, &self.grant)?;
        loop {
            self.engine.turn();
            if let Some(completion) = self.portal.poll() {
                return Ok(completion);
            }
        }
    }

    fn add(&mut self) -> Result<Completion, PairError> {
        self.run(|portal, grant| portal.fetch_add(grant, 0, 1).map(drop))
    }

    /// Asks what became of an op until there is an answer.
    fn settle(&mut self, name: OpName) -> Result<(Completion, Duration), PairError> {
        let began = self.clock.now();
        let mut failures = Failures::default();
        loop {
            let answer = self.run(|portal, grant| portal.settle(grant, name).map(drop))?;
            if answer.status == OpStatus::Ok {
                return Ok((answer, self.clock.now().since(began)));
            }
            failures.count(answer.status, self.clock.now())?;
        }
    }
}

/// Has `count` ops end with TIMEOUT, and settles each.
///
/// The NICs wait for data for `timeout`: an op takes as long to end as this and as long again.
/// Where a thread stands still for longer, more ops are not applied than lost their data.
///
/// # Errors
/// If the engines cannot be had, op after op ends otherwise, or an answer is wrong.
///
/// # Panics
/// If the target's thread does.
pub fn run(
    lab: &Lab,
    mtu: u32,
    timeout: Duration,
    count: u64,
    interrupt: &Interrupt,
) -> Result<Settled, PairError> {
    let a: (&Netns, HostAddr) = (lab.a(), Lab::A_V4.into());
    let b: (&Netns, HostAddr) = (lab.b(), Lab::B_V4.into());
    let timing = Timing::software(Duration::from_micros(10), timeout);
    let settings = NicConfigBuilder::default().with(|it| it.timing = timing);
    let nic = BareNic { mtu, settings, aead: aead::chosen() };
    let losing = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
    let [data, acknowledgement] = &losing;
    let wrap = |lost: &Arc<AtomicU64>| {
        let lost = Arc::clone(lost);
        |device| Losing { device, lost }
    };
    let mut target = engine(a, b, nic, wrap(acknowledgement))?;
    let mut engine = engine(b, a, nic, wrap(data))?;
    let (region, word, schedule) = register(&mut target, 8, Permissions::ATOMIC);
    let op_type = OpType::FetchAdd;
    let binding = KeyBinding { initiator: a.1, responder: b.1, pid: PID, op_type };
    let grant = Grant {
        responder: b.1,
        region,
        region_len: 8,
        initiator: a.1,
        pid: PID,
        op_type,
        key: schedule.derive(&binding),
    };
    engine.service_mut().nic_mut().configure_slots(0..1, Some(PID));
    let (portal, port) = portal(PortalConfig {
        slots: 0..1,
        pid: PID,
        addresses: a.1.into(),
        bell: None,
        flag: None,
        nic: NicTag(1),
    });
    engine.service_mut().attach(port);
    let mut initiator = Initiator { engine, portal, grant, clock: TscClock::new() };
    let stop = AtomicBool::new(false);
    let (initiator_core, target_core) = cores();
    let mut settled = Settled { read_bound: timing.bound(OpType::Read), ..Settled::default() };
    thread::scope(|scope| {
        scope.spawn(|| {
            pin(target_core);
            while !stop.load(Relaxed) {
                target.turn();
            }
        });
        let settling = scope.spawn(|| {
            pin(initiator_core);
            ops(&mut initiator, &mut settled, (&losing, &word), count, interrupt)
        });
        let result = settling.join();
        stop.store(true, Relaxed);
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    Ok(settled)
}

fn ops(
    initiator: &mut Initiator,
    settled: &mut Settled,
    ([data, acknowledgement], word): (&[Arc<AtomicU64>; 2], &Region),
    count: u64,
    interrupt: &Interrupt,
) -> Result<(), PairError> {
    let mut failures = Failures::default();
    while settled.applied + settled.not_applied < count {
        if interrupt.is_set() {
            return Err(PairError::Interrupted);
        }
        let is_even = (settled.applied + settled.not_applied).is_multiple_of(2);
        let lost = if is_even { acknowledgement } else { data };
        let before = loaded(word);
        lost.store(SECOND, Relaxed);
        let ended = initiator.add()?;
        lost.store(0, Relaxed);
        let Some(name) = ended.name().filter(|_| ended.may_have_changed()) else {
            // The machine was so busy that no data was sent: there is nothing to settle.
            failures.count(ended.status, initiator.clock.now())?;
            continue;
        };
        failures.ok(initiator.clock.now());
        let (answer, took) = initiator.settle(name)?;
        settled.slowest = settled.slowest.max(took);
        // The word's content is the truth, whatever was lost.
        let right = if loaded(word) == before {
            settled.not_applied += 1;
            (Some(Verdict::NotApplied), None)
        } else {
            settled.applied += 1;
            (Some(Verdict::Applied), Some(before))
        };
        if (answer.verdict(), answer.result()) != right {
            return Err(PairError::WrongByte { at: 0 });
        }
    }
    Ok(())
}

fn loaded(word: &Region) -> u64 {
    word.load_acquire(0).expect("the region is a word")
}
