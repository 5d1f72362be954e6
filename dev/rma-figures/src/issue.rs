//! The cost of issuing ops to an application's thread: the bare portal, and the CommandExecutor
//! with congestion control.
//!
//! Against a *null engine*: a thread on another core that takes commands and completes them at
//! once. So what is measured are the rings, crossing between cores, and all that is done on the
//! application's side, with looking whether the engine sleeps, as behind a host with an engine
//! thread: it never does here. No NIC, no frame. Beside it stands what two cores can hand to each
//! other at all ([`bare_lines`]).

mod lines;

use core::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};
use std::{sync::Arc, thread};

use rma_bench::pair::{cores, pin};
use rma_core::{
    addr::{HostAddr, Pid},
    cc::CcConfigBuilder,
    command::{Command, Completion},
    crypto::DerivedRegionKey,
    executor::{Call, CallStatus, CommandExecutor, ExecutorConfig, Piece},
    grant::Grant,
    op::{ClassOfService, OpStatus, OpType},
    portal::{Bell, CommandPortal, FlagLender, PortalConfig, PortalPort, ReadOp, Wake, portal},
    region::{NicTag, RegionId, RegisteredRegion},
    time::Clock,
};
use rma_xdp::{Region, time::TscClock};

/// Command slots: as many ops may be under way.
const SLOTS: u16 = 256;

const PID: Pid = Pid(7);

/// The delays that the null engine reports, in nanoseconds: nothing is congested.
const DELAYS: (u64, u64) = (100, 4_000);

/// Wakes an engine that never sleeps.
#[derive(Debug)]
struct Never;

impl Wake for Never {
    fn wake(&self) {
        unreachable!("nobody sleeps on this doorbell");
    }
}

/// The op that is issued again and again: a read of 64 bytes.
struct Issued {
    grant: Grant,
    local: RegisteredRegion,
}

impl Issued {
    fn new() -> Self {
        let memory = Region::new(4096).expect("a page can be had");
        let grant = Grant {
            responder: HostAddr::from([192, 0, 2, 2]),
            region: RegionId::from_bits(9),
            region_len: 4096,
            initiator: HostAddr::from([192, 0, 2, 1]),
            pid: PID,
            op_type: OpType::Read,
            key: DerivedRegionKey::from_bytes([3; 16]),
        };
        let local = RegisteredRegion::new(RegionId::from_bits(1), Arc::new(memory), NicTag(1));
        Self { grant, local }
    }
}

/// Issues `count` commands through a portal, in batches, and polls their completions. How many a
/// second.
///
/// # Panics
/// If a command is refused or fails.
#[must_use]
pub fn portal_commands(count: u64) -> f64 {
    measure(count, |portal, issued, clock| {
        let op = ReadOp {
            grant: &issued.grant,
            remote_offset: 64,
            sink: &issued.local,
            sink_offset: 0,
            op_size: 64,
            class: ClassOfService::Latency,
        };
        let mut portal = portal;
        let start = clock.now();
        let mut done = 0;
        while done < count {
            while let Some(completion) = portal.poll() {
                assert_eq!(completion.status, OpStatus::Ok);
                done += 1;
            }
            let free = usize::from(SLOTS) - portal.outstanding();
            let mut batch = portal.batch();
            for _ in 0..free {
                batch.read(&op).expect("a slot is free");
            }
        }
        clock.now().since(start)
    })
}

/// Submits `count` calls of one op to a CommandExecutor with congestion control, and takes their
/// outcomes. How many a second.
///
/// # Panics
/// If a call is refused or fails.
#[must_use]
pub fn executor_ops(count: u64) -> f64 {
    measure(count, |portal, issued, clock| {
        let piece = [Piece {
            grant: &issued.grant,
            remote_offset: 64,
            local: &issued.local,
            local_offset: 0,
            len: 64,
        }];
        let call = Call::of(&piece);
        let cc = CcConfigBuilder::software(Duration::from_micros(10));
        let config = ExecutorConfig::default().with(|it| it.cc = cc);
        let mut executor = CommandExecutor::new(portal, config).expect("the settings work");
        let start = clock.now();
        let (mut submitted, mut done) = (0, 0);
        while done < count {
            let now = clock.now();
            executor.poll(now);
            while let Some(outcome) = executor.poll_outcome() {
                assert_eq!(outcome.status, CallStatus::Ok);
                done += 1;
            }
            while submitted - done < u64::from(SLOTS) {
                executor.submit(now, &call).expect("the call is right, and there is room");
                submitted += 1;
            }
        }
        clock.now().since(start)
    })
}

/// Hands `count` lines of 64 bytes to the other core, as many under way as a portal has slots, and
/// takes a line back for each. How many a second.
#[must_use]
pub fn bare_lines(count: u64) -> f64 {
    lines::lines(count, SLOTS)
}

fn measure(
    count: u64,
    run: impl FnOnce(CommandPortal, &Issued, &TscClock) -> Duration + Send,
) -> f64 {
    let addresses = HostAddr::from([192, 0, 2, 1]).into();
    let bell = Some(Bell { doorbell: Default::default(), wake: Arc::new(Never) });
    let flag = Some(FlagLender::new().lend());
    let config = PortalConfig { slots: 0..SLOTS, pid: PID, addresses, bell, flag, nic: NicTag(1) };
    let (portal, port) = portal(config);
    let stop = AtomicBool::new(false);
    let (application_core, engine_core) = cores();
    let took = thread::scope(|scope| {
        scope.spawn(|| {
            pin(engine_core);
            null_engine(port, &stop);
        });
        let application = scope.spawn(|| {
            pin(application_core);
            let issued = Issued::new();
            run(portal, &issued, &TscClock::new())
        });
        let took = application.join();
        stop.store(true, Relaxed);
        took.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    count as f64 / took.as_secs_f64()
}

fn null_engine(mut port: PortalPort, stop: &AtomicBool) {
    let mut command = Command::NONE;
    while !stop.load(Relaxed) {
        while let Some(taken) = port.take_into(&mut command) {
            taken.expect("commands are well-formed");
            port.complete(&Completion::new(command.slot, OpStatus::Ok, DELAYS.0, DELAYS.1));
        }
    }
}
