//! The fate of refused requests: queues, rates, old keys, and how much work it is (P10, P11).

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use rma_crypto::{DeriveJob, Key, KeySchedule, OpenJob, PreparedKey, ProviderKind, SealJob};

use super::*;
use crate::{backend::LINK_LEN, crypto::fastest, nic::region_table::Decoy};

const WRONG: DerivedRegionKey = DerivedRegionKey::from_bytes([0xee; 16]);

fn with_rate(notices_per_second: u32) -> Pair {
    Pair::with(NicConfigBuilder { notices_per_second, ..NicConfigBuilder::default() })
}

impl Pair {
    fn rotate(&mut self, key: u8) {
        let key = RegionKey::from_bytes([key; 16]);
        self.b.nic.regions_mut().rekey(self.b.region, &key).unwrap();
    }

    /// The requests of reads, from slot 0 on.
    fn requests_of(&mut self, commands: impl IntoIterator<Item = Command>) -> Vec<Flight> {
        commands.into_iter().for_each(|command| self.issue(command));
        self.requests()
    }

    fn drops(&self, reason: DropReason) -> u64 {
        self.b.nic.counters().drops(reason)
    }

    fn not_sent(&self, reason: NotSent) -> u64 {
        self.b.nic.counters().not_sent(reason)
    }

    fn timeout_of_b(&self) -> Duration {
        self.b.nic.config().settings().timing.timeout
    }
}

//= 1rma#5.2-rekey-atomic
//= type=test
#[test]
fn a_holder_of_an_old_key_is_told_though_strangers_have_used_up_their_rate() {
    let mut pair = with_rate(0);
    let strange = Command { key: WRONG, ..pair.read(0, 0, 64) };
    let requests = pair.requests_of([strange, pair.read(1, 0, 64), pair.write(2, 0, 64)]);
    pair.rotate(9);
    let refused: Vec<_> = requests.iter().map(|request| pair.deliver_to_b(request)).collect();
    let unauthenticated = Err(DropReason::RequestUnauthenticated);
    assert_eq!(refused, [unauthenticated, Err(DropReason::OldKey), Err(DropReason::OldKey)]);
    assert_eq!(pair.not_sent(NotSent::NoticeRateLimited), 1);
    for notice in pair.responses() {
        assert!(notice.bytes.len() < 56, "no amplifier");
        assert!(notice.transmit.may_resolve, "they are known");
        pair.deliver_to_a(&notice).unwrap();
    }
    let ends = [pair.completion().status, pair.completion().status];
    assert_eq!(ends, [OpStatus::RemoteAuthenticationFailure; 2]);
}

#[test]
fn previous_keys_are_told_apart_for_two_timeouts_and_then_erased() {
    for rotations in 1..=5 {
        for (passed, in_time) in [(0, true), (199, true), (200, false)] {
            let mut pair = Pair::new();
            let request = pair.requests_of([pair.read(0, 0, 64)]).remove(0);
            (0..rotations).for_each(|key| pair.rotate(10 + key));
            pair.b.nic.handle_timeout(pair.now);
            assert_eq!(pair.b.nic.poll_timeout(), Some(pair.now + pair.timeout_of_b() * 2));
            pair.now = pair.now + Duration::from_millis(passed);
            pair.b.nic.handle_timeout(pair.now);
            let is_old = in_time && rotations <= 4;
            let reason =
                if is_old { DropReason::OldKey } else { DropReason::RequestUnauthenticated };
            assert_eq!(pair.deliver_to_b(&request), Err(reason), "{rotations}, {passed} ms");
            assert_eq!(pair.responses().len(), 1, "a stranger is told as well, within the rate");
            let lost = pair.b.nic.counters().previous_keys_lost();
            assert_eq!(lost, u64::from(rotations == 5));
            assert_eq!(pair.b.nic.poll_timeout().is_none(), !in_time);
        }
    }
}

#[test]
fn a_request_under_an_old_key_is_told_once_in_a_timeout() {
    let mut pair = Pair::new();
    let request = pair.requests_of([pair.read(0, 0, 64)]).remove(0);
    pair.rotate(9);
    pair.b.nic.handle_timeout(pair.now);
    let copy = |pair: &mut Pair| (pair.deliver_to_b(&request), pair.responses().len());
    assert_eq!(copy(&mut pair), (Err(DropReason::OldKey), 1));
    assert_eq!(copy(&mut pair), (Err(DropReason::Duplicate), 0));
    pair.now = pair.now + pair.timeout_of_b();
    assert_eq!(copy(&mut pair), (Err(DropReason::OldKey), 1));
    // An unproven tag is not remembered: it could be another's tag.
    let strange = Command { key: WRONG, ..pair.read(1, 0, 64) };
    let forged = pair.requests_of([strange]).remove(0);
    for _ in 0..3 {
        assert_eq!(pair.deliver_to_b(&forged), Err(DropReason::RequestUnauthenticated));
        assert_eq!(pair.responses().len(), 1);
    }
}

#[test]
fn a_timeout_without_a_second_notice_begins_when_the_first_was_sent() {
    let mut pair = with_rate(1);
    pair.a.nic.configure_slots(8..300, Some(PID));
    let reads: Vec<_> = (0..257).map(|slot| pair.read(slot, 0, 64)).collect();
    let requests = pair.requests_of(reads);
    pair.rotate(9);
    pair.b.nic.handle_timeout(pair.now);
    for request in &requests[..256] {
        assert_eq!(pair.deliver_to_b(request), Err(DropReason::OldKey));
    }
    let before = pair.now;
    assert_eq!(pair.responses().len(), 256);
    // The last finds no token: there are 1,000 a second, and 256 at first.
    assert_eq!(pair.deliver_to_b(&requests[256]), Err(DropReason::OldKey));
    assert_eq!(pair.b.nic.frames_waiting(), 0, "nobody spins over it");
    let next = pair.now + Duration::from_millis(1);
    assert_eq!(pair.b.nic.poll_timeout(), Some(next));
    pair.now = next;
    assert!(pair.responses().is_empty(), "before the NIC was told what time it is");
    pair.b.nic.handle_timeout(next);
    assert_eq!((pair.b.nic.frames_waiting(), pair.responses().len()), (1, 1));
    pair.now = before + pair.timeout_of_b();
    assert_eq!(pair.deliver_to_b(&requests[256]), Err(DropReason::Duplicate));
    assert_eq!(pair.deliver_to_b(&requests[0]), Err(DropReason::OldKey));
}

/// The key that stands for none is no secret: a request is compared with it beside previous keys,
/// so that it takes as long. A request sealed under it has shown nothing.
#[test]
fn a_request_under_the_key_that_stands_for_none_is_a_strangers() {
    for rotations in 0..=5_u8 {
        let mut pair = with_rate(0);
        let (memory, key) = (pair.b.memory.clone(), pair.b.key);
        let steady = register(&mut pair.b.nic, &memory, &key, Permissions::READ);
        let key = pair.key_under(&Decoy::KEY, OpType::Read);
        let names = [steady, pair.b.region, RegionId::from_bits(77), RegionId::from_bits(u32::MAX)];
        let forged = (0..).zip(names).map(|(slot, remote_region)| Command {
            key,
            remote_region,
            ..pair.read(slot, 0, 64)
        });
        let forged: Vec<_> = forged.collect();
        let forged = pair.requests_of(forged);
        (0..rotations).for_each(|key| pair.rotate(20 + key));
        let refused: Vec<_> = forged.iter().map(|request| pair.deliver_to_b(request)).collect();
        let (known, unknown) =
            (Err(DropReason::RequestUnauthenticated), Err(DropReason::UnknownRegion));
        assert_eq!(refused, [known, known, unknown, unknown], "{rotations} rotations");
        assert!(pair.responses().is_empty(), "strangers are told nothing");
    }
}

#[test]
fn an_op_whose_region_changes_while_it_waits_is_told_so_once() {
    for deregistered in [false, true] {
        let mut pair = Pair::new();
        let request = pair.requests_of([pair.read(0, 0, 64)]).remove(0);
        // Twice in the inbound queue: reads are not remembered.
        pair.deliver_to_b(&request).unwrap();
        pair.deliver_to_b(&request).unwrap();
        if deregistered {
            let region = pair.b.region;
            pair.b.nic.deregister(region).unwrap();
        } else {
            pair.rotate(9);
        }
        let notices = pair.responses();
        assert_eq!((notices.len(), pair.drops(DropReason::OldKey)), (1, 2));
        pair.deliver_to_a(&notices[0]).unwrap();
        assert_eq!(pair.status(), OpStatus::RemoteAuthenticationFailure);
    }
}

#[test]
fn notices_that_wait_for_a_timeout_are_forgotten_and_counted() {
    let mut pair = with_rate(1);
    let strange = Command { key: WRONG, ..pair.read(0, 0, 64) };
    let forged = pair.requests_of([strange]).remove(0);
    for _ in 0..300 {
        let _ = pair.deliver_to_b(&forged);
        let _ = pair.responses();
    }
    let beyond = pair.requests_of([pair.read(1, u64::MAX, 64)]).remove(0);
    assert_eq!(pair.deliver_to_b(&beyond), Err(DropReason::RequestOutOfBounds));
    let forgotten_at = pair.now + pair.timeout_of_b();
    assert_eq!(pair.b.nic.poll_timeout(), Some(forgotten_at));
    pair.b.nic.handle_timeout(forgotten_at);
    assert_eq!(pair.not_sent(NotSent::NoticeRateLimited), 44);
    assert_eq!(pair.b.nic.counters().requests_abandoned(), 1, "the device has stood still");
    assert_eq!((pair.b.nic.frames_waiting(), pair.b.nic.poll_timeout()), (0, None));
}

/// The initiator that asks for most makes room where there is none, and initiators take turns.
#[test]
fn refusals_of_one_host_do_not_push_out_those_of_another() {
    let mut pair = Pair::new();
    let beyond = pair.requests_of([pair.read(0, u64::MAX, 1)]).remove(0);
    let mut other = Pair::between("192.0.2.3", "192.0.2.2", NicConfigBuilder::default());
    let others = other.requests_of([other.read(0, u64::MAX, 1)]).remove(0);
    for _ in 0..300 {
        assert_eq!(pair.deliver_to_b(&beyond), Err(DropReason::RequestOutOfBounds));
    }
    assert_eq!(pair.not_sent(NotSent::NoticeQueueFull), 44);
    assert_eq!(pair.deliver_to_b(&others), Err(DropReason::RequestOutOfBounds));
    assert_eq!(pair.not_sent(NotSent::NoticeQueueFull), 45);
    let notices = pair.responses();
    let is_others = |it: &Flight| it.transmit.destination == other.a.addr;
    assert_eq!(notices.len(), 256);
    assert!(notices[..2].iter().any(is_others), "it has its turn");
}

#[test]
fn causes_take_turns() {
    let mut pair = Pair::new();
    let strange = Command { key: WRONG, ..pair.read(0, 0, 64) };
    let requests = pair.requests_of([strange, pair.read(1, 0, 64), pair.read(2, u64::MAX, 64)]);
    // Two rows of the table with one name each: the second keeps its key.
    let (memory, key) = (pair.b.memory.clone(), pair.b.key);
    let steady = register(&mut pair.b.nic, &memory, &key, Permissions::READ);
    let beyond = Command { remote_region: steady, ..pair.read(3, u64::MAX, 64) };
    let beyond = pair.requests_of([beyond]).remove(0);
    pair.rotate(9);
    let (strange, old) = (&requests[0], &requests[1..]);
    for _ in 0..2 {
        let _ = pair.deliver_to_b(strange);
        let _ = pair.deliver_to_b(&beyond);
    }
    for request in old {
        let _ = pair.deliver_to_b(request);
    }
    let statuses: Vec<u8> = pair.responses().iter().map(|it| it.bytes[3]).collect();
    let (refused, beyond) =
        (OpStatus::RemoteAuthenticationFailure as u8, OpStatus::RemoteOutOfBounds as u8);
    assert_eq!(statuses, [beyond, refused, refused, beyond, refused, refused]);
}

/// A notice to whoever may be unknown keeps the way that its cause came; nothing else does.
#[test]
fn notices_under_the_reserved_key_can_go_back_the_way_that_their_causes_came() {
    let link: [u8; LINK_LEN] = core::array::from_fn(|octet| octet as u8 + 1);
    let mut pair = Pair::new();
    let strange = Command { key: WRONG, ..pair.read(0, 0, 64) };
    let (memory, key) = (pair.b.memory.clone(), pair.b.key);
    let steady = register(&mut pair.b.nic, &memory, &key, Permissions::READ);
    let at_steady = |command| Command { remote_region: steady, ..command };
    let answered = at_steady(pair.read(2, 0, 64));
    let beyond = at_steady(pair.read(3, u64::MAX, 64));
    let commands = [strange, pair.read(1, 0, 64), answered, beyond];
    let requests = pair.requests_of(commands);
    pair.rotate(9);
    for Flight { transmit, mut bytes } in requests {
        let frame = RxFrame {
            source_port: crate::port::SourcePort::FIRST,
            is_first: true,
            is_handed_over: false,
            source: transmit.source,
            destination: transmit.destination,
            port: transmit.port,
            reply_len_max: 1472,
            link: Some(&link),
            bytes: &mut bytes,
        };
        let _ = pair.b.nic.handle_frame(pair.now, &pair.now, frame);
    }
    let mut out = [0; wire::FRAME_LEN_MAX];
    let mut went = [None; 4];
    while let Some(transmit) = pair.b.nic.poll_transmit(pair.now, &mut out) {
        let behind = &out[transmit.len..transmit.len + LINK_LEN];
        assert!(!transmit.link_behind || behind == link);
        went[usize::from(out[13])] = Some((transmit.link_behind, transmit.may_resolve));
    }
    let expected = [(true, false), (true, true), (false, true), (false, true)];
    assert_eq!(went, expected.map(Some), "a stranger, an old key, an answer, a refusal under K_d");
}

/// A provider that counts what it is asked for.
#[derive(Debug)]
struct Counting {
    provider: &'static dyn AeadProvider,
    /// Schedules, derivations and calls for some, openings and calls for some.
    asked: [AtomicUsize; 5],
}

impl Counting {
    fn count(&self, which: usize, count: usize) {
        self.asked[which].fetch_add(count, Relaxed);
    }

    fn take(&self) -> [usize; 5] {
        self.asked.each_ref().map(|it| it.swap(0, Relaxed))
    }
}

impl AeadProvider for Counting {
    fn kind(&self) -> ProviderKind {
        self.provider.kind()
    }

    fn schedule(&self, key: &Key) -> KeySchedule {
        self.count(0, 1);
        self.provider.schedule(key)
    }

    fn derive(&self, jobs: &[DeriveJob<'_>], keys: &mut [Key]) {
        self.count(1, jobs.len());
        self.count(2, 1);
        self.provider.derive(jobs, keys);
    }

    fn prepare(&self, key: &Key) -> PreparedKey {
        self.provider.prepare(key)
    }

    fn seal(&self, jobs: &mut [SealJob<'_>]) {
        self.provider.seal(jobs);
    }

    fn open(&self, jobs: &mut [OpenJob<'_>]) {
        self.count(3, jobs.len());
        self.count(4, 1);
        self.provider.open(jobs);
    }
}

/// The time of a refusal must not tell whether a RegionId names anything, nor whether that was
/// rotated lately.
#[test]
fn a_refusal_is_the_same_work_whatever_its_region_id_names() {
    let counting: &'static Counting =
        Box::leak(Box::new(Counting { provider: fastest(), asked: Default::default() }));
    let mut pair = Pair::new();
    let mut nic = Nic::with_aead(*pair.b.nic.config(), counting);
    let (memory, key) = (pair.b.memory.clone(), pair.b.key);
    let all = Permissions::READ | Permissions::WRITE | Permissions::REKEY;
    let [gone, rotated, steady] = [0; 3].map(|_| register(&mut nic, &memory, &key, all));
    nic.deregister(gone).unwrap();
    let names = [rotated, steady, gone, RegionId::from_bits(77), RegionId::from_bits(u32::MAX)];
    for rotations in 0..=5_usize {
        if rotations > 0 {
            nic.regions_mut().rekey(rotated, &RegionKey::from_bytes([9; 16])).unwrap();
        }
        let previous = rotations.min(4);
        for mutation in [false, true] {
            for (count, command) in [(1, 0), (4, 4)] {
                let mut work = Vec::new();
                for remote_region in names {
                    let commands: Vec<_> = (command..command + count)
                        .map(|slot| match mutation {
                            false => pair.read(slot, 0, 4096),
                            true => pair.write(slot, 0, 4096),
                        })
                        .map(|command| Command { key: WRONG, remote_region, ..command })
                        .collect();
                    let mut requests = pair.requests_of(commands);
                    pair.advance(Duration::from_secs(1));
                    while pair.a.nic.poll_completion().is_some() {}
                    let mut frames: Vec<_> = requests
                        .iter_mut()
                        .map(|Flight { transmit, bytes }| RxFrame {
                            source_port: crate::port::SourcePort::FIRST,
                            is_first: true,
                            is_handed_over: false,
                            source: transmit.source,
                            destination: transmit.destination,
                            port: transmit.port,
                            reply_len_max: 1472,
                            link: None,
                            bytes,
                        })
                        .collect();
                    counting.take();
                    nic.handle_frames(pair.now, &pair.now, &mut frames);
                    work.push(counting.take());
                }
                let count = usize::from(count);
                let (tries, calls) = (count * (1 + previous), 1 + count * previous);
                let each = [0, tries, calls, tries, calls];
                assert_eq!(work, [each; 5], "{rotations} rotations, {count} at a time");
            }
        }
    }
    assert!(nic.counters().drops(DropReason::UnknownRegion) > 0);
    assert!(nic.counters().drops(DropReason::RequestUnauthenticated) > 0);
}
