//! Calls that come after others are told in time: an application that sleeps for as long as
//! `poll_timeout` says misses nothing.

use core::time::Duration;
use std::sync::Arc;

use crate::{
    addr::{HostAddr, Pid},
    command::Completion,
    crypto::DerivedRegionKey,
    executor::{Call, CallStatus, CommandExecutor, ExecutorConfig, Piece, RetryPolicy},
    grant::Grant,
    op::{OpStatus, OpType},
    portal::{PortalConfig, portal},
    region::{NicTag, RegionId, RegisteredRegion},
    time::Instant,
};

const HERE: [u8; 4] = [192, 0, 2, 1];
const DEAD: [u8; 4] = [192, 0, 2, 2];
const ALIVE: [u8; 4] = [192, 0, 2, 3];

fn grant(responder: [u8; 4]) -> Grant {
    Grant {
        responder: responder.into(),
        region: RegionId::from_bits(9),
        region_len: 4096,
        initiator: HERE.into(),
        pid: Pid(7),
        op_type: OpType::Read,
        key: DerivedRegionKey::from_bytes([3; 16]),
    }
}

#[test]
fn a_call_after_one_that_ends_as_it_begins_is_told_at_once() {
    let (pid, nic, addresses) = (Pid(7), NicTag(1), HostAddr::from(HERE).into());
    let (portal, mut port) =
        portal(PortalConfig { slots: 0..16, pid, addresses, bell: None, flag: None, nic });
    let mut executor = CommandExecutor::new(portal, ExecutorConfig::default()).unwrap();
    let memory = Arc::new(rma_shm::Region::new(4096).unwrap());
    let local = RegisteredRegion::new(RegionId::from_bits(1), memory, nic);
    let (dead, alive) = (grant(DEAD), grant(ALIVE));
    let piece = |grant| Piece { grant, remote_offset: 0, local: &local, local_offset: 0, len: 64 };
    let (dead, alive) = ([piece(&dead)], [piece(&alive)]);
    let mut now = Instant::from_nanos(1_000_000);
    let (mut under_way, mut over) = (Vec::new(), Vec::new());
    let mut run = |executor: &mut CommandExecutor| loop {
        executor.poll(now);
        while let Some(command) = port.take().map(Result::unwrap) {
            let (after, status) = match command.responder == HostAddr::from(DEAD) {
                true => (Duration::from_millis(100), OpStatus::Timeout),
                false => (Duration::from_micros(10), OpStatus::Ok),
            };
            under_way.push((now + after, command.slot, status));
        }
        while let Some(outcome) = executor.poll_outcome() {
            over.push((outcome.call, outcome.status, now));
        }
        let next = under_way.iter().map(|&(at, ..)| at).chain(executor.poll_timeout()).min();
        let Some(next) = next else { return now };
        now = now.max(next);
        let (ended, rest) = under_way.drain(..).partition(|&(at, ..)| at <= now);
        under_way = rest;
        let ended: Vec<(Instant, _, _)> = ended;
        for (_, slot, status) in ended {
            port.complete(&Completion::new(slot, status, 0, 10_000));
        }
    };
    executor.submit(Instant::from_nanos(1_000_000), &Call::of(&dead)).unwrap();
    let now = run(&mut executor);
    executor.submit(now, &Call::of(&alive)).unwrap();
    executor.fence();
    // The probe is this one's, so the next is over as the fence is passed.
    executor.submit(now, &Call::of(&dead)).unwrap();
    let first = Call::of(&dead).with(|it| it.retry = RetryPolicy::NONE);
    let first = executor.submit(now, &first).unwrap();
    let last = Call::of(&alive).with(|it| it.after = [Some(first), None]);
    let last = executor.submit(now, &last).unwrap();
    run(&mut executor);
    let end_of = |call| over.iter().find(|it| it.0 == call).unwrap();
    let ((_, status, at), (_, told, told_at)) = (end_of(first), end_of(last));
    assert!(matches!(status, CallStatus::PeerSilent { .. }), "{status}");
    assert_eq!((told, told_at), (&CallStatus::PredecessorFailed, at));
}
