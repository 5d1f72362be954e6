use core::time::Duration;
use std::sync::Arc;

use rma_core::{
    addr::Pid,
    command::Completion,
    crypto::RegionKey,
    grant::Grant,
    limits::OP_SIZE_MAX,
    op::{OpStatus, OpType},
    portal::{CommandPortal, Source},
    receive_queue::{ReceiveQueue, ReceiveQueueLayout},
    region::{Permissions, RegisteredRegion},
    time::Instant,
    wire::{
        mutation::DATA_OVERHEAD,
        read::{REQUEST_LEN, RESPONSE_OVERHEAD},
        recorded::RECORDED_REQUEST_LEN,
    },
};
use rma_shm::Region;

use super::{network::Network, options::NetworkOptions};
use crate::{
    net::{frame::NodeId, link::Faults},
    prng::Chance,
};

const HERE: NodeId = NodeId(0);
const THERE: NodeId = NodeId(1);
const PID: Pid = Pid(7);
const LEN: usize = 8192;

/// One process here, which issues ops, and what another one has there.
struct Pair {
    network: Network,
    portal: CommandPortal,
    local: RegisteredRegion,
    queue: ReceiveQueue,
    remote: RegisteredRegion,
}

const fn source(region: &RegisteredRegion, len: u32) -> Source<'_> {
    Source { region, offset: 0, len }
}

fn memory() -> Arc<Region> {
    Arc::new(Region::new(LEN).unwrap())
}

impl Pair {
    fn new(options: NetworkOptions) -> Self {
        let mut network = Network::new(options);
        let portal = network.portal(HERE, 8, PID);
        let local = network.register((HERE, PID), memory(), Permissions::NONE, None);
        let (queue, remote) = Self::there(&mut network, memory());
        Self { network, portal, local, queue, remote }
    }

    /// A queue of four receives, and a region whose events go there.
    fn there(network: &mut Network, memory: Arc<Region>) -> (ReceiveQueue, RegisteredRegion) {
        let layout = ReceiveQueueLayout::new(4, 256).unwrap();
        let permissions = Permissions::SEND | Permissions::NOTIFY;
        let mut queue = network.receive_queue((THERE, PID), layout, permissions);
        queue.post_all();
        let permissions = Permissions::READ
            | Permissions::WRITE
            | Permissions::NOTIFY
            | Permissions::ATOMIC
            | Permissions::REKEY;
        let remote = network.register((THERE, PID), memory, permissions, Some(&queue));
        (queue, remote)
    }

    fn exact() -> Self {
        Self::new(NetworkOptions::exact(2))
    }

    fn grant(&self, op_type: OpType) -> Grant {
        let region = match op_type {
            OpType::Send | OpType::Notify => self.queue.region(),
            _ => &self.remote,
        };
        self.network.grant(region, self.network.address(HERE), PID, op_type)
    }

    /// Hops since time `began`.
    fn hops(&self, began: Instant) -> u64 {
        let hop = self.network.options().link.delay.as_nanos() as u64;
        let passed = self.network.now().since(began).as_nanos() as u64;
        assert_eq!(passed % hop, 0, "{passed} ns are no hops");
        passed / hop
    }

    /// Has what was issued done. Returns in how many hops something was there, as `is_there` says,
    /// and in how many the issuer knew how it had ended.
    fn run(&mut self, is_there: impl Fn(&Self) -> bool) -> (u64, u64, Completion) {
        let began = self.network.now();
        let mut delivered = None;
        assert_eq!(self.network.take_commands(HERE), 1);
        loop {
            if delivered.is_none() && is_there(self) {
                delivered = Some(self.hops(began));
            }
            if let Some(done) = self.portal.poll() {
                let hops = self.hops(began);
                while self.network.step().is_some() {}
                self.network.check_rest();
                return (delivered.unwrap_or(hops), hops, done);
            }
            assert!(self.network.step().is_some(), "the op ends");
        }
    }
}

#[test]
fn a_read_is_done_in_two_hops_and_the_other_host_issues_nothing() {
    let mut pair = Pair::exact();
    let grant = pair.grant(OpType::Read);
    pair.remote.store(4088, 0x0102).unwrap();
    pair.portal.read(&grant, 0, &pair.local, 0, OP_SIZE_MAX).unwrap();
    let (_, done, completion) = pair.run(|_| false);
    assert_eq!((done, completion.status, pair.local.load(4088)), (2, OpStatus::Ok, Ok(0x0102)));
    let [here, there] = [HERE, THERE].map(|node| *pair.network.counts(node));
    assert_eq!((here.total().issued, here.of(OpType::Read).frames), (1, 1));
    let read = there.of(OpType::Read);
    let octets = RESPONSE_OVERHEAD as u64 + u64::from(OP_SIZE_MAX);
    assert_eq!((there.total().issued, read.frames, read.octets), (0, 1, octets));
    assert_eq!((here.packets, there.packets), (1, 1));
    assert_eq!(here.of(OpType::Read).octets, REQUEST_LEN as u64);
}

#[test]
fn an_ordered_write_is_there_in_three_hops_and_done_in_four() {
    let mut pair = Pair::exact();
    let grant = pair.grant(OpType::Write);
    pair.local.store(24, 5).unwrap();
    pair.portal.write_ordered(&grant, 64, source(&pair.local, 32)).unwrap();
    let (there, done, completion) = pair.run(|it| it.remote.load(88) == Ok(5));
    assert_eq!((there, done, completion.status), (3, 4, OpStatus::Ok));
}

#[test]
fn messages_and_notices_are_events_in_three_hops_and_done_in_four() {
    let mut pair = Pair::exact();
    pair.local.write(0, b"hello").unwrap();
    for op_type in [OpType::Send, OpType::Notify, OpType::WriteWithImm] {
        let grant = pair.grant(op_type);
        let before = *pair.network.counts(HERE);
        match op_type {
            OpType::Send => pair.portal.send(&grant, &pair.local, 0, 5, 9),
            OpType::Notify => pair.portal.notify(&grant, 9),
            _ => pair.portal.write_with_imm(&grant, 100, source(&pair.local, 5), 9),
        }
        .unwrap();
        let (there, done, completion) = pair.run(|it| it.queue.has_event());
        assert_eq!((there, done, completion.status), (3, 4, OpStatus::Ok), "{op_type}");
        let event = pair.queue.poll().unwrap();
        let from = (pair.network.address(HERE), PID);
        assert_eq!((event.op_type, event.immediate), (op_type, 9));
        assert_eq!((event.initiator, event.pid), from);
        let mut bytes = [0; 5];
        match op_type {
            OpType::Send => pair.queue.read(&event, &mut bytes).unwrap(),
            OpType::Notify => continue,
            _ => pair.remote.read(event.region_offset, &mut bytes).unwrap(),
        }
        assert_eq!(&bytes, b"hello");
        let counts = pair.network.counts(HERE).since(&before).of(op_type);
        let octets = (RECORDED_REQUEST_LEN + DATA_OVERHEAD + 5) as u64;
        assert_eq!((counts.issued, counts.done), (1, 1));
        assert_eq!((counts.frames, counts.octets), (2, octets));
    }
}

#[test]
fn an_addition_is_there_in_three_hops_and_tells_what_was_there_in_four() {
    let mut pair = Pair::exact();
    let grant = pair.grant(OpType::FetchAdd);
    pair.remote.store(8, 40).unwrap();
    pair.portal.fetch_add(&grant, 8, 2).unwrap();
    let (there, done, completion) = pair.run(|it| it.remote.load(8) == Ok(42));
    assert_eq!((there, done, completion.result()), (3, 4, Some(40)));
}

#[test]
fn a_key_that_another_host_or_the_owner_installs_ends_what_grants_were_good_for() {
    let mut pair = Pair::exact();
    let old = pair.grant(OpType::Read);
    let (rekey, key) = (pair.grant(OpType::Rekey), RegionKey::from_bytes([3; 16]));
    pair.portal.rekey(&rekey, key).unwrap();
    let (_, done, completion) = pair.run(|_| false);
    assert_eq!((done, completion.status), (4, OpStatus::Ok));
    let new = pair.grant(OpType::Read);
    let key = RegionKey::from_bytes([3; 16]);
    assert_eq!(new, old.under(&key), "grants are made under the key that is there");
    let read = |pair: &mut Pair, grant: &Grant| {
        pair.portal.read(grant, 0, &pair.local, 0, 8).unwrap();
        pair.run(|_| false).2.status
    };
    let refused = OpStatus::RemoteAuthenticationFailure;
    assert_eq!([read(&mut pair, &old), read(&mut pair, &new)], [refused, OpStatus::Ok]);
    let key = pair.network.key();
    pair.network.rekey(&pair.remote.clone(), &key);
    let newest = new.under(&key);
    assert_eq!([read(&mut pair, &new), read(&mut pair, &newest)], [refused, OpStatus::Ok]);
    pair.network.deregister(&pair.remote.clone());
    assert_eq!(read(&mut pair, &newest), refused);
}

/// A holder of a grant for a later key may use it too early. The request is refused, and when the
/// region has that key, a copy of it may be believed: it brings no data.
#[test]
fn a_request_under_a_key_that_the_region_gets_later_may_be_replayed_then_and_changes_nothing() {
    let mut pair = Pair::exact();
    let [next, last] = [0, 1].map(|_| pair.network.key());
    let early = pair.grant(OpType::FetchAdd).under(&next);
    pair.portal.fetch_add(&early, 8, 2).unwrap();
    assert_eq!(pair.run(|_| false).2.status, OpStatus::RemoteAuthenticationFailure);
    for (key, solicitations) in [(next, 1), (last, 0)] {
        pair.network.rekey(&pair.remote.clone(), &key);
        let before = *pair.network.counts(THERE);
        pair.network.replay(1);
        while pair.network.step().is_some() {}
        pair.network.check_rest();
        let sent = pair.network.counts(THERE).since(&before).of(OpType::FetchAdd).frames;
        assert_eq!((sent, pair.remote.load(8)), (solicitations, Ok(0)));
    }
}

#[test]
fn an_op_on_a_circular_region_goes_on_at_its_beginning() {
    let mut pair = Pair::exact();
    let circular = Arc::new(Region::circular(128).unwrap());
    pair.remote = pair.network.register((THERE, PID), circular, Permissions::WRITE, None);
    let grant = pair.grant(OpType::Write);
    assert_eq!(grant.region_len, 256);
    pair.local.write(0, &[7; 16]).unwrap();
    pair.portal.write_ordered(&grant, 120, source(&pair.local, 16)).unwrap();
    let (there, _, completion) = pair.run(|it| it.remote.load(0) == Ok(u64::MAX / 255 * 7));
    assert_eq!((there, completion.status), (3, OpStatus::Ok));
}

#[test]
fn a_host_that_restarts_has_nothing_of_before_and_may_have_all_of_it_anew() {
    let mut pair = Pair::exact();
    let old = pair.grant(OpType::Read);
    pair.network.crash(THERE);
    assert!(!pair.network.is_running(THERE) && pair.network.take_commands(THERE) == 0);
    let read = |pair: &mut Pair, grant: &Grant| {
        pair.portal.read(grant, 0, &pair.local, 0, 8).unwrap();
        pair.run(|_| false).2.status
    };
    assert_eq!(read(&mut pair, &old), OpStatus::Timeout);
    pair.network.restart(THERE);
    let memory = Arc::clone(pair.remote.memory());
    (pair.queue, pair.remote) = Pair::there(&mut pair.network, memory);
    assert_eq!(read(&mut pair, &old), OpStatus::RemoteAuthenticationFailure);
    let new = pair.grant(OpType::Read);
    assert_eq!(read(&mut pair, &new), OpStatus::Ok);
    let mut portal = pair.network.portal(THERE, 4, PID);
    let back = pair.network.grant(&pair.remote, pair.network.address(THERE), PID, OpType::Read);
    portal.read(&back, 0, &pair.remote, 64, 8).unwrap();
    assert_eq!(pair.network.take_commands(THERE), 1);
    while pair.network.step().is_some() {}
    assert!(portal.poll().is_some_and(|done| done.status == OpStatus::Ok));
}

#[test]
fn a_host_that_is_paused_answers_when_it_runs_again() {
    let mut pair = Pair::exact();
    let grant = pair.grant(OpType::Read);
    let pause = Duration::from_micros(10);
    assert!(pair.network.pause(THERE, pause) && !pair.network.pause(THERE, pause));
    pair.portal.read(&grant, 0, &pair.local, 0, 8).unwrap();
    let (_, done, completion) = pair.run(|_| false);
    assert_eq!((done, completion.status), (11, OpStatus::Ok));
}

/// Sends so many messages, one after the other. Returns how many came, and when it was over.
fn send(options: NetworkOptions, count: u64) -> (u64, u64) {
    let mut pair = Pair::new(options);
    let grant = pair.grant(OpType::Notify);
    let mut came = 0;
    for number in 0..count {
        pair.portal.notify(&grant, number).unwrap();
        pair.network.take_commands(HERE);
        pair.network.replay(2);
        while pair.portal.poll().is_none() {
            assert!(pair.network.step().is_some(), "the op ends");
        }
    }
    pair.network.heal();
    while pair.network.step().is_some() {
        while let Some(event) = pair.queue.poll() {
            assert!(event.immediate < count);
            came += 1;
            pair.queue.post(event.receive).unwrap();
        }
    }
    pair.network.check_rest();
    (came, pair.network.now().as_nanos())
}

#[test]
fn a_seed_says_all_of_a_network_and_its_faults() {
    let mut lost = 0;
    for seed in 0..40 {
        let options = NetworkOptions::from_seed(seed, 2);
        let first = send(options.clone(), 4);
        assert_eq!(first, send(options, 4), "seed {seed}");
        lost += 4 - first.0;
    }
    assert!(lost > 0);
    let dead = NetworkOptions::exact(2).with(|it| {
        it.link.faults = Faults { loss: Chance::ppm(1_000_000), ..Faults::default() };
    });
    assert_eq!(send(dead, 2).0, 0);
}
