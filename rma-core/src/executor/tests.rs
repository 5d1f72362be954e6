//! A CommandExecutor against an engine in the test's hands: what is issued, and what becomes of it.

use core::time::Duration;
use std::{collections::VecDeque, sync::Arc};

use proptest::prelude::*;
use rma_shm::Region;

use super::*;
use crate::{
    addr::{HostAddr, LocalAddresses, Pid},
    cc::{Algorithm, CcConfigBuilder},
    crypto::DerivedRegionKey,
    error::SubmitError,
    grant::Grant,
    op::{ClassOfService, OpType},
    portal::{PortalConfig, PortalPort, portal},
    region::{NicTag, RegionId, RegisteredRegion},
};

mod bad_input;
mod calls_after;
mod died;
mod not_ready;
mod order;
mod publishing;
mod settle;
mod silence;
mod trouble;

const PID: Pid = Pid(7);
const RTT: Duration = Duration::from_micros(10);

fn addr(text: &str) -> HostAddr {
    text.parse().unwrap()
}

/// A region of `len` bytes that nobody looks into.
fn local(id: u32, len: u64) -> RegisteredRegion {
    let memory = Arc::new(Region::new(len as usize).unwrap());
    RegisteredRegion::new(RegionId::from_bits(id), memory, NicTag(1))
}

fn grant(responder: &str, op_type: OpType, region_len: u64) -> Grant {
    Grant {
        responder: addr(responder),
        region: RegionId::from_bits(9),
        region_len,
        initiator: addr("192.0.2.1"),
        pid: PID,
        op_type,
        key: DerivedRegionKey::from_bytes([3; 16]),
    }
}

/// An executor, and the engine's end of its portal.
struct Bench {
    executor: CommandExecutor,
    port: PortalPort,
    now: Instant,
    /// Commands that were taken and not completed.
    taken: VecDeque<Command>,
}

/// Windows that stay, and no pace.
fn fixed(window: f64) -> CcConfigBuilder {
    CcConfigBuilder {
        algorithm: Algorithm::Fixed,
        cwnd_initial: window,
        cwnd_max: window.max(1.0),
        ..CcConfigBuilder::software(RTT)
    }
}

impl Bench {
    fn new(slots: u16, cc: CcConfigBuilder) -> Self {
        Self::with(slots, ExecutorConfig { cc, ..ExecutorConfig::default() })
    }

    fn with(slots: u16, config: ExecutorConfig) -> Self {
        let addresses: LocalAddresses = addr("192.0.2.1").into();
        let nic = NicTag(1);
        let slots = 5..5 + slots;
        let (portal, port) =
            portal(PortalConfig { slots, pid: PID, addresses, bell: None, flag: None, nic });
        let executor = CommandExecutor::new(portal, config).unwrap();
        Self { executor, port, now: Instant::from_nanos(1_000_000), taken: VecDeque::new() }
    }

    fn submit(&mut self, pieces: &[Piece<'_>]) -> CallId {
        self.executor.submit(self.now, &Call::of(pieces)).unwrap()
    }

    /// Lets the executor issue what it may, and takes the commands.
    fn take(&mut self) -> Vec<Command> {
        self.executor.poll(self.now);
        let new: Vec<Command> =
            core::iter::from_fn(|| self.port.take()).map(Result::unwrap).collect();
        self.taken.extend(&new);
        new
    }

    /// Completes the oldest command that was taken.
    fn complete(&mut self, status: OpStatus) -> Command {
        let command = self.taken.pop_front().expect("a command was taken");
        self.port.complete(&Completion::new(command.slot, status, 0, 5_000));
        command
    }

    /// Runs until nothing is under way; every op ends with what `status` says of it. Returns all
    /// commands.
    fn run(&mut self, mut status: impl FnMut(&Command) -> OpStatus) -> Vec<Command> {
        self.run_watched(|bench| status(bench.taken.front().expect("one is under way")))
    }

    /// [`Bench::run`]; `status` is of the oldest command under way.
    fn run_watched(&mut self, mut status: impl FnMut(&Self) -> OpStatus) -> Vec<Command> {
        let mut all = Vec::new();
        loop {
            all.extend(self.take());
            match self.taken.front() {
                Some(_) => {
                    let status = status(self);
                    self.complete(status);
                }
                None => match self.executor.poll_timeout() {
                    Some(at) if self.executor.calls() > self.executor.over.len() => self.now = at,
                    _ => return all,
                },
            }
            self.now = self.now + Duration::from_nanos(100);
        }
    }

    fn outcome(&mut self) -> Outcome {
        self.executor.poll_outcome().expect("a call is over")
    }
}

fn transfer(command: &Command) -> Transfer {
    match command.op {
        CommandOp::Read(transfer) | CommandOp::Write(transfer) => transfer,
        other => panic!("no transfer: {other:?}"),
    }
}

#[test]
fn a_call_of_one_op_is_one_command_and_has_one_outcome() {
    for op_type in [OpType::Read, OpType::Write] {
        let (mut bench, local) = (Bench::new(4, fixed(8.0)), local(1, 4096));
        let grant = grant("192.0.2.2", op_type, 1 << 20);
        let piece =
            Piece { grant: &grant, remote_offset: 70, local: &local, local_offset: 9, len: 64 };
        let call = bench.submit(&[piece]);
        assert!(bench.port.take().is_none(), "nothing before the next poll");
        let commands = bench.run(|_| OpStatus::Ok);
        assert_eq!(commands.len(), 1);
        let command = commands[0];
        assert_eq!((command.op.op_type(), command.class), (op_type, ClassOfService::Latency));
        assert_eq!((command.responder, command.remote_region), (grant.responder, grant.region));
        let local_region = local.id();
        let expected = Transfer { op_size: 64, remote_offset: 70, local_region, local_offset: 9 };
        assert_eq!(transfer(&command), expected);
        let outcome = bench.outcome();
        assert_eq!((outcome.call, outcome.status), (call, CallStatus::Ok));
        assert_eq!((outcome.bytes_done, outcome.retries, outcome.missing.len()), (64, 0, 0));
        assert!(bench.executor.poll_outcome().is_none());
        assert_eq!((bench.executor.calls(), bench.executor.ops_outstanding()), (0, 0));
    }
}

//= 1rma#4.4-executor
//= type=test
#[test]
fn a_transfer_past_4_gib_is_cut_into_ops_that_cover_it_once() {
    const PIECE: u64 = (4 << 20) + 77;
    const LEN: u64 = PIECE * PIECES_MAX as u64;
    let mut bench = Bench::new(64, fixed(64.0));
    // Written from the same memory again and again: reads would need as much as that.
    let local = local(1, PIECE + 5);
    let grant = grant("192.0.2.2", OpType::Write, u64::MAX);
    let start = u64::MAX - LEN;
    let piece = |index| Piece {
        grant: &grant,
        remote_offset: start + index * PIECE,
        local: &local,
        local_offset: 5,
        len: PIECE,
    };
    let pieces: Vec<_> = (0..PIECES_MAX as u64).map(piece).collect();
    bench.submit(&pieces);
    let mut next = 0;
    // One after the other, so in order.
    loop {
        bench.take();
        if bench.taken.is_empty() {
            break;
        }
        let command = bench.complete(OpStatus::Ok);
        let Transfer { op_size, remote_offset, local_offset, .. } = transfer(&command);
        assert!((1..=4096).contains(&op_size));
        assert_eq!((remote_offset, local_offset), (start + next, 5 + next % PIECE));
        assert_eq!(command.class, ClassOfService::Throughput);
        next += u64::from(op_size);
    }
    assert_eq!(next, LEN);
    let outcome = bench.outcome();
    assert_eq!((outcome.status, outcome.bytes_done), (CallStatus::Ok, LEN));
}

//= 1rma#6-outstanding-ops
//= type=test
#[test]
fn no_more_is_outstanding_than_the_window_and_the_slots_allow() {
    for (slots, window, most) in [(64, 10.0, 10), (4, 10.0, 3), (64, 0.5, 1), (1, 64.0, 1)] {
        let (mut bench, local) = (Bench::new(slots, fixed(window)), local(1, 1 << 20));
        let grant = grant("192.0.2.2", OpType::Read, 1 << 20);
        let piece =
            Piece { grant: &grant, remote_offset: 0, local: &local, local_offset: 0, len: 1 << 20 };
        bench.submit(&[piece]);
        let mut peak = 0;
        bench.run_watched(|bench| {
            peak = peak.max(bench.taken.len());
            OpStatus::Ok
        });
        assert_eq!(peak, most, "{slots} slots, a window of {window}");
        assert_eq!(bench.outcome().status, CallStatus::Ok);
    }
}

//= 1rma#6-issue-rate
//= type=test
//= 1rma#6-congestion-control
//= type=test
#[test]
fn ops_are_paced_at_the_window_per_round_trip() {
    // Not below one op outstanding, so that the pace rules, and not the window.
    let cc = CcConfigBuilder {
        cwnd_initial: 4.0,
        cwnd_max: 4.0,
        op_size: 4096,
        ..CcConfigBuilder::software(RTT)
    };
    let config = ExecutorConfig {
        cc,
        payload_len_max: PayloadLenMax { ipv4: 4096, ipv6: 4096 },
        ..ExecutorConfig::default()
    };
    let (mut bench, local) = (Bench::with(64, config), local(1, 1 << 20));
    let grant = grant("192.0.2.2", OpType::Read, 1 << 20);
    let piece =
        Piece { grant: &grant, remote_offset: 0, local: &local, local_offset: 0, len: 1 << 20 };
    bench.submit(&[piece]);
    let start = bench.now;
    let mut issued = 0;
    for _ in 0..100 {
        issued += bench.take().len();
        while !bench.taken.is_empty() {
            // As long as the round trip that the pace starts from.
            let command = bench.taken.pop_front().unwrap();
            bench.port.complete(&Completion::new(command.slot, OpStatus::Ok, 0, 10_000));
        }
        bench.executor.poll(bench.now);
        issued += bench.take().len();
        bench.now = bench.executor.poll_timeout().expect("the next op has its time");
    }
    let rate = issued as f64 / bench.now.nanos_since(start) as f64;
    let expected = 4.0 / 10_000.0;
    assert!((rate / expected - 1.0).abs() < 0.1, "{issued} ops, {rate} of {expected}");
}

proptest! {
    /// Whatever fails and however often: what the outcome says is there was transferred, and what
    /// it says is missing was not.
    #[test]
    fn an_outcome_tells_exactly_which_bytes_were_transferred(
        lens in prop::collection::vec(1..20_000_u64, 1..5),
        statuses in prop::collection::vec(0..OpStatus::ALL.len() * 3, 1..40),
        (timeouts, refusals) in (0..4_u8, 0..4_u8),
        slots in 1..20_u16,
        write: bool,
    ) {
        let mut bench = Bench::new(slots, fixed(6.0));
        let local = local(1, 200_000);
        let op_type = if write { OpType::Write } else { OpType::Read };
        let grant = grant("192.0.2.2", op_type, 1 << 30);
        let mut at = 0;
        let pieces: Vec<_> = lens.iter().enumerate().map(|(index, &len)| {
            let piece = Piece {
                grant: &grant,
                remote_offset: 100_000 * index as u64,
                local: &local,
                local_offset: at,
                len,
            };
            at += len + 1;
            piece
        }).collect();
        let retry = RetryPolicy { timeouts, refusals, ..RetryPolicy::DEFAULT };
        bench.executor.submit(bench.now, &Call { retry, ..Call::of(&pieces) }).unwrap();
        // By local offset: how often each byte was transferred.
        let mut there = vec![0_u8; 200_000];
        let mut tries = statuses.iter().cycle();
        bench.run(|command| {
            // Most are OK.
            let status = *tries.next().unwrap();
            let status = OpStatus::ALL.get(status).copied().unwrap_or(OpStatus::Ok);
            if status == OpStatus::Ok {
                let Transfer { op_size, local_offset, .. } = transfer(command);
                let start = local_offset as usize;
                there[start..start + op_size as usize].iter_mut().for_each(|byte| *byte += 1);
            }
            status
        });
        let outcome = bench.outcome();
        let mut expected = vec![0_u8; 200_000];
        for piece in &pieces {
            let start = piece.local_offset as usize;
            expected[start..start + piece.len as usize].fill(1);
        }
        let mut missing = 0;
        for it in &outcome.missing {
            let start = (pieces[it.piece].local_offset + it.offset) as usize;
            let bytes = &mut expected[start..start + it.len as usize];
            prop_assert!(bytes.iter().all(|&byte| byte == 1), "told once, and within its piece");
            bytes.fill(0);
            missing += it.len;
        }
        prop_assert!(there == expected);
        prop_assert_eq!(outcome.bytes_done + missing, lens.iter().sum::<u64>());
        prop_assert_eq!(outcome.status == CallStatus::Ok, outcome.missing.is_empty());
        prop_assert_eq!(bench.executor.calls(), 0);
        // Missing pieces can be asked of another host.
        let other = grant_at("192.0.2.3", op_type);
        let remaining = outcome.remaining(&pieces, |_| &other);
        prop_assert_eq!(remaining.iter().map(|piece| piece.len).sum::<u64>(), missing);
        if !remaining.is_empty() {
            bench.submit(&remaining);
            bench.run(|_| OpStatus::Ok);
            prop_assert_eq!(bench.outcome().bytes_done, missing);
        }
    }
}

fn grant_at(responder: &str, op_type: OpType) -> Grant {
    grant(responder, op_type, 1 << 30)
}

#[test]
fn transient_failures_are_retried_as_often_as_the_policy_says_and_others_never() {
    use OpStatus::{DispatchTimeout, Nack, Ok, Timeout};
    let local = local(1, 4096);
    let grant = grant("192.0.2.2", OpType::Write, 4096);
    let piece =
        [Piece { grant: &grant, remote_offset: 0, local: &local, local_offset: 0, len: 64 }];
    // The host answers another op before each that fails: it is not silent.
    let run = |bench: &mut Bench, statuses: &mut dyn Iterator<Item = OpStatus>| {
        let mut issued = 0;
        while !bench.take().is_empty() {
            issued += 1;
            let other = bench.submit(&piece);
            bench.now = bench.now + Duration::from_nanos(100);
            assert_eq!(bench.take().len(), 1);
            let answered = bench.taken.pop_back().unwrap();
            bench.port.complete(&Completion::new(answered.slot, Ok, 0, 5_000));
            bench.executor.poll(bench.now);
            assert_eq!(bench.outcome().call, other);
            bench.complete(statuses.next().unwrap());
            bench.now = bench.now + Duration::from_millis(10);
        }
        issued
    };
    for status in OpStatus::ALL {
        for (timeouts, refusals) in [(0, 0), (2, 0), (0, 5), (3, 7)] {
            let mut bench = Bench::new(4, fixed(8.0));
            let retry = RetryPolicy { timeouts, refusals, ..RetryPolicy::DEFAULT };
            let call = Call { retry, ..Call::of(&piece) };
            bench.executor.submit(bench.now, &call).unwrap();
            let issued = run(&mut bench, &mut core::iter::repeat(status));
            let retries = match status {
                Timeout => timeouts,
                Nack | DispatchTimeout => refusals,
                _ => 0,
            };
            assert_eq!(issued, 1 + usize::from(retries), "{status}");
            let outcome = bench.outcome();
            assert_eq!(outcome.retries, u32::from(retries));
            let ended = if status == Ok { CallStatus::Ok } else { CallStatus::Failed(status) };
            assert_eq!(outcome.status, ended);
            assert_eq!((outcome.op_type, outcome.responder), (OpType::Write, grant.responder));
            assert_eq!(outcome.region, grant.region);
        }
    }
    let mut bench = Bench::new(4, fixed(8.0));
    bench.submit(&piece);
    assert_eq!(run(&mut bench, &mut [Timeout, Nack, DispatchTimeout, Ok].into_iter()), 4);
    assert_eq!(bench.outcome().status, CallStatus::Ok);
}

#[test]
fn calls_and_slots_are_used_again_for_ever() {
    let config = ExecutorConfig { calls: 3, cc: fixed(8.0), ..ExecutorConfig::default() };
    let (mut bench, local) = (Bench::with(2, config), local(1, 1 << 16));
    let grant = grant("192.0.2.2", OpType::Read, 1 << 16);
    let mut ids = std::collections::BTreeSet::new();
    for round in 0..1000 {
        let piece = Piece {
            grant: &grant,
            remote_offset: round % 64,
            local: &local,
            local_offset: round % 64,
            len: 1 + round * 7 % 20_000,
        };
        let call = Call {
            deadline: Some(bench.now + Duration::from_secs(10)),
            ..Call::of(core::slice::from_ref(&piece))
        };
        for _ in 0..3 {
            let id = bench.executor.submit(bench.now, &call).unwrap();
            assert!(ids.insert(id), "a name is not used twice");
        }
        let error = bench.executor.submit(bench.now, &call).unwrap_err();
        assert_eq!(error, CallError::TooManyCalls { calls: 3 });
        bench.run(|_| OpStatus::Ok);
        for _ in 0..3 {
            assert_eq!(bench.outcome().bytes_done, piece.len);
        }
    }
    assert!(bench.executor.deadlines.len() <= 6, "those of calls that are over do not pile up");
}
