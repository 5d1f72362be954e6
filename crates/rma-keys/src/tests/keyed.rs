//! Transfers under which the key changes, over a real executor whose engine is in the test's hands.

use core::time::Duration;
use std::{collections::VecDeque, sync::Arc};

use rma_core::{
    command::{Command, CommandOp, Completion, Transfer},
    executor::{CallError, CallStatus, CommandExecutor, ExecutorConfig, RetryPolicy},
    grant::Grant,
    op::{OpStatus, OpType},
    portal::{PortalConfig, PortalPort, portal},
    region::{NicTag, RegionId, RegisteredRegion},
    time::Instant,
};
use rma_shm::Region;

use super::{
    addresses,
    client::{HOLDER_PID, REFUSED, SECOND, World, service},
    name, region, secret, term,
};
use crate::{
    catalog,
    keyed::{KeyedCall, KeyedCallId, KeyedExecutor, KeyedOutcome, KeyedPiece, KeyedStatus},
    limits::CALL_FETCHES,
    ring::GiveUp,
};

const LEN: u64 = 1 << 16;

struct Bench {
    world: World,
    executor: KeyedExecutor,
    port: PortalPort,
    local: RegisteredRegion,
    taken: VecDeque<Command>,
    /// The region that its responder has.
    live: RegionId,
    /// The bytes that were transferred, by the remote offset.
    done: Vec<(u64, u32)>,
}

impl Bench {
    fn new(world: World) -> Self {
        let nic = NicTag(1);
        let addresses = addresses(&["192.0.2.1"]);
        let config =
            PortalConfig { slots: 0..8, pid: HOLDER_PID, addresses, bell: None, flag: None, nic };
        let (portal, port) = portal(config);
        let executor = CommandExecutor::new(portal, ExecutorConfig::default()).unwrap();
        let memory = Arc::new(Region::new(LEN as usize).unwrap());
        Self {
            world,
            executor: KeyedExecutor::new(executor),
            port,
            local: RegisteredRegion::new(RegionId::from_bits(1), memory, nic),
            taken: VecDeque::new(),
            live: region().id,
            done: Vec::new(),
        }
    }

    /// A read of two pieces, which are the whole region.
    fn call(&self) -> KeyedCall {
        let piece = |offset, len| KeyedPiece {
            ring: self.world.ring,
            remote_offset: offset,
            local: self.local.clone(),
            local_offset: offset,
            len,
        };
        KeyedCall {
            op_type: OpType::Read,
            pieces: vec![piece(0, 10_000), piece(10_000, LEN - 10_000)],
            class: None,
            retry: RetryPolicy::DEFAULT,
            deadline: None,
        }
    }

    fn submit(&mut self, call: KeyedCall) -> KeyedCallId {
        self.executor.submit(self.world.now.boot, &mut self.world.cache, call)
    }

    fn poll(&mut self) {
        self.executor.poll(self.world.now.boot, &mut self.world.cache);
        self.taken.extend(core::iter::from_fn(|| self.port.take()).map(Result::unwrap));
    }

    /// Runs until so many ops have ended as their keys have it.
    fn run_ops(&mut self, ops: usize) {
        for _ in 0..100_000 {
            self.poll();
            if self.done.len() == ops {
                return;
            }
            if !self.taken.is_empty() {
                self.complete(None);
            }
            self.world.pass(Duration::from_micros(1));
        }
        panic!("it issues no more");
    }

    /// Ends the oldest op: as `status` says, or else as its key has it.
    fn complete(&mut self, status: Option<OpStatus>) {
        let Command { slot, responder, remote_region, key, op, .. } =
            self.taken.pop_front().expect("an op is under way");
        let (op_type, Transfer { op_size, remote_offset, .. }) = match op {
            CommandOp::Read(transfer) => (OpType::Read, transfer),
            CommandOp::Write(transfer) => (OpType::Write, transfer),
            _ => panic!("{op:?}"),
        };
        let grant = Grant {
            responder,
            region: remote_region,
            region_len: LEN,
            initiator: "192.0.2.1".parse().unwrap(),
            pid: HOLDER_PID,
            op_type,
            key,
        };
        let status = status.unwrap_or_else(|| {
            if remote_region == self.live { self.world.outcome(&grant, &key) } else { REFUSED }
        });
        if status == OpStatus::Ok {
            self.done.push((remote_offset, op_size));
        }
        self.port.complete(&Completion::new(slot, status, 0, 5_000));
    }

    /// Runs until a call is over. What the client asks of the service is answered if it `serves`.
    fn run(&mut self, serves: bool, status: Option<OpStatus>) -> KeyedOutcome {
        for _ in 0..100_000 {
            self.poll();
            if let Some(outcome) = self.executor.poll_outcome() {
                return outcome;
            }
            if self.taken.is_empty() {
                let fetched = if serves { self.world.serve() } else { 0 };
                if fetched == 0 {
                    let now = self.world.now.boot;
                    let fetch = self.world.cache.poll_timeout().filter(|_| serves);
                    let times = [self.executor.poll_timeout(), fetch];
                    let next = times.into_iter().flatten().min();
                    self.world.pass(next.expect("it waits").since(now));
                }
            } else {
                self.complete(status);
                self.world.pass(Duration::from_micros(1));
            }
        }
        panic!("it never ends");
    }

    /// Whether each byte was transferred, and none twice.
    fn is_whole(&mut self) -> bool {
        self.done.sort_unstable();
        let mut end = 0;
        self.done.iter().all(|&(at, len)| core::mem::replace(&mut end, at + u64::from(len)) == at)
            && end == LEN
    }
}

//= 1rma#5.2-reactive
//= type=test
#[test]
fn a_transfer_under_which_the_key_changes_goes_on_with_what_is_missing() {
    for lead in [0, 600] {
        let mut bench = Bench::new(World::warm());
        let mut next = None;
        if lead > 0 {
            bench.world.pass(SECOND * 3000);
            next = Some(bench.world.announce(2, SECOND * lead));
            bench.world.pass(SECOND * 590);
            bench.world.serve();
        }
        let call = bench.call();
        let id = bench.submit(call);
        bench.run_ops(5);
        // The key changes while others are under way.
        let next = next.unwrap_or_else(|| bench.world.announce(2, Duration::ZERO));
        bench.world.install(2, next);
        let before = bench.world.cache.counters().fetches;
        let outcome = bench.run(true, None);
        assert_eq!((outcome.call, outcome.status), (id, KeyedStatus::Ended(CallStatus::Ok)));
        assert_eq!((outcome.bytes_done, outcome.rekeyed), (LEN, 1));
        assert!(outcome.missing.is_empty() && bench.is_whole());
        let fetches = bench.world.cache.counters().fetches - before;
        assert_eq!(fetches, u64::from(lead == 0), "what was handed out before is not fetched");
    }
}

/// The fate of a region in the midst of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Becomes {
    /// It goes by another key.
    Rekeyed,
    /// Another is published under its name.
    Another,
    /// Its owner starts again, whose RegionIds begin anew.
    OfAnotherLife,
}

#[test]
fn a_write_whose_region_becomes_another_begins_anew_in_that_one_and_else_goes_on() {
    for becomes in [Becomes::Rekeyed, Becomes::Another, Becomes::OfAnotherLife] {
        let mut bench = Bench::new(World::cold());
        let World { cache, source, ring, .. } = &mut bench.world;
        let ops = [OpType::Read, OpType::Write].into_iter().collect();
        *ring = cache.region(*source, name("kv/index"), ops).unwrap();
        let deadline = bench.world.now.boot + SECOND * 60;
        let call = KeyedCall { op_type: OpType::Write, deadline: Some(deadline), ..bench.call() };
        bench.submit(call);
        bench.poll();
        bench.world.serve();
        // All of the first piece is done, and a part of the second.
        bench.run_ops(8);
        let before: u64 = bench.done.iter().map(|&(_, len)| u64::from(len)).sum();
        assert!(bench.done.iter().any(|&(at, _)| at == 0) && before > 10_000 && before < LEN);
        let now = bench.world.now;
        match becomes {
            Becomes::Rekeyed => {
                let next = bench.world.announce(2, Duration::ZERO);
                bench.world.install(2, next);
            }
            Becomes::Another => {
                bench.live = RegionId::from_bits(6);
                let other = catalog::Region { len: LEN, id: bench.live, ..region() };
                let hour = term(now.boot + SECOND * 3000, now.boot + SECOND * 3600);
                bench.world.key = 2;
                let service = &mut bench.world.service;
                service.publish(now, name("kv/index"), other, &secret(2), hour).unwrap();
            }
            Becomes::OfAnotherLife => {
                bench.world.key = 2;
                bench.world.service = service(8, 2, now);
            }
        }
        if becomes != Becomes::Rekeyed {
            // The written bytes are nowhere any longer.
            bench.done.clear();
        }
        let outcome = bench.run(true, None);
        assert_eq!(outcome.status, KeyedStatus::Ended(CallStatus::Ok), "{becomes:?}");
        assert_eq!((outcome.bytes_done, outcome.rekeyed), (LEN, 1), "{becomes:?}");
        assert!(bench.is_whole(), "{becomes:?}: {:?}", bench.done);
        assert!(bench.world.now.boot < deadline);
    }
}

#[test]
fn a_call_waits_for_its_first_key_and_then_runs() {
    let mut bench = Bench::new(World::cold());
    let call = bench.call();
    bench.submit(call);
    bench.poll();
    assert!(bench.taken.is_empty());
    let outcome = bench.run(true, None);
    assert_eq!(outcome.status, KeyedStatus::Ended(CallStatus::Ok));
    assert!(bench.is_whole());
}

#[test]
fn a_call_without_a_key_ends_by_its_deadline_and_says_what_is_missing_and_whose_key() {
    for deadline in [None, Some(SECOND)] {
        let mut bench = Bench::new(World::warm());
        let began = bench.world.now.boot;
        let call = KeyedCall { deadline: deadline.map(|it| began + it), ..bench.call() };
        bench.submit(call);
        bench.run_ops(2);
        let next = bench.world.announce(2, Duration::ZERO);
        bench.world.install(2, next);
        // Nobody takes its fetch to the service.
        let outcome = bench.run(false, None);
        let KeyedStatus::Late { ring, waited } = outcome.status else { panic!("{outcome:?}") };
        let missing = bench.world.cache.place(ring).expect("it is in use");
        assert_eq!(missing, (bench.world.source, &name("kv/index")));
        assert!(waited > Duration::ZERO);
        let took = bench.world.now.boot.since(began);
        let most = deadline.unwrap_or(SECOND * 10);
        assert!(took >= most && took < most + Duration::from_millis(1), "{took:?}");
        let missing: u64 = outcome.missing.iter().map(|it| it.len).sum();
        assert_eq!(missing + outcome.bytes_done, LEN);
        assert!(outcome.bytes_done > 0);
        assert!(outcome.missing.iter().any(|it| it.tried == Some(REFUSED)));
        // In the call's own pieces.
        let ends: Vec<_> =
            outcome.missing.iter().map(|it| (it.piece, it.offset + it.len)).collect();
        assert_eq!(ends.last(), Some(&(1, LEN - 10_000)), "{ends:?}");
        assert_eq!(bench.executor.poll_timeout(), None::<Instant>);
    }
}

#[test]
fn notices_forged_without_end_end_a_call_after_its_fetches() {
    let mut bench = Bench::new(World::warm());
    let call = bench.call();
    bench.submit(call);
    let outcome = bench.run(true, Some(REFUSED));
    let fetches = CALL_FETCHES;
    assert_eq!(outcome.status, KeyedStatus::GaveUp(GiveUp::Fetches { fetches }));
    let missing: u64 = outcome.missing.iter().map(|it| it.len).sum();
    assert_eq!((outcome.bytes_done, missing), (0, LEN));
    assert_eq!(bench.world.cache.counters().fetches, 1 + u64::from(fetches));
}

#[test]
fn a_call_that_gets_on_may_outlive_more_keys_than_it_may_wait_for_at_once() {
    let mut bench = Bench::new(World::warm());
    let call = bench.call();
    bench.submit(call);
    for key in 2..8 {
        bench.run_ops(bench.done.len() + 1);
        let next = bench.world.announce(key, Duration::ZERO);
        bench.world.install(key, next);
        // Ops under way are refused.
        while !bench.taken.is_empty() {
            bench.complete(None);
            bench.poll();
        }
        bench.world.serve();
    }
    let outcome = bench.run(true, None);
    assert_eq!((outcome.status, outcome.rekeyed), (KeyedStatus::Ended(CallStatus::Ok), 6));
    assert!(bench.is_whole());
}

#[test]
fn errors_that_are_not_about_keys_end_a_call_as_ever() {
    let mut bench = Bench::new(World::warm());
    let call = bench.call();
    bench.submit(call);
    let denied = OpStatus::RemotePermissionDenied;
    let outcome = bench.run(true, Some(denied));
    assert_eq!(outcome.status, KeyedStatus::Ended(CallStatus::Failed(denied)));
    let mut call = bench.call();
    call.pieces[1].remote_offset = LEN;
    bench.submit(call);
    let outcome = bench.run(true, None);
    let is_refused = matches!(
        outcome.status,
        KeyedStatus::Refused(CallError::RemoteOutOfBounds { piece: 1, .. })
    );
    assert!(is_refused, "{outcome:?}");
    // A ring for other ops.
    let call = KeyedCall { op_type: OpType::Write, ..bench.call() };
    bench.submit(call);
    let outcome = bench.run(true, None);
    assert_eq!(outcome.status, KeyedStatus::GaveUp(GiveUp::Denied));
    // No pieces at all.
    let call = KeyedCall { pieces: Vec::new(), ..bench.call() };
    bench.submit(call);
    let outcome = bench.run(true, None);
    assert_eq!(outcome.status, KeyedStatus::Refused(CallError::Pieces { pieces: 0 }));
}
