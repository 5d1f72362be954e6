//! Each rule of P13 alone: shares, parking, entries. What a turn of lists is, `fair_queue` tests.

use super::*;

/// A target and initiators whose frames are moved by hand.
struct Asked {
    now: Instant,
    target: Host,
    initiators: Vec<Host>,
}

impl Asked {
    fn by(initiators: usize, settings: NicConfigBuilder) -> Self {
        let host = |at: usize| {
            let mut host = Host::new(&format!("192.0.2.{}", at + 1), settings);
            host.nic.configure_slots(8..256, Some(PID));
            host
        };
        let mut hosts: Vec<_> = (0..=initiators).map(host).collect();
        Self { now: Instant::from_nanos(1_000), target: hosts.remove(0), initiators: hosts }
    }

    fn with_window(ops: u32) -> Self {
        let solicitation_window = ops * OP_SIZE_MAX;
        Self::by(1, NicConfigBuilder { solicitation_window, ..NicConfigBuilder::default() })
    }

    fn hold(&self) -> Duration {
        self.target.nic.config().hold()
    }

    fn timeout(&self) -> Duration {
        self.target.nic.config().settings().timing.timeout
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.target.nic.handle_timeout(self.now);
        self.initiators.iter_mut().for_each(|it| it.nic.handle_timeout(self.now));
    }

    /// A mutation of initiator `by`: hop 1 on the wire.
    fn request(&mut self, by: usize, slot: u16, op_size: Option<u32>) -> Flight {
        let (initiator, responder) = (self.initiators[by].addr, self.target.addr);
        let local_region = self.initiators[by].region;
        let op = match op_size {
            None => CommandOp::Rekey(self.target.key),
            Some(op_size) => CommandOp::Write(Transfer {
                op_size,
                remote_offset: 0,
                local_region,
                local_offset: 0,
            }),
        };
        let op_type = op.op_type();
        let binding = KeyBinding { initiator, responder, pid: PID, op_type };
        let command = Command {
            slot: CommandSlotId(slot),
            class: ClassOfService::Latency,
            responder,
            remote_region: self.target.region,
            key: crate::crypto::RegionKeySchedule::new(&self.target.key).derive(&binding),
            op,
        };
        let nic = &mut self.initiators[by].nic;
        nic.handle_command(self.now, command).unwrap();
        self.initiators[by].transmit(self.now).remove(0)
    }

    /// As [`Asked::request`] of a whole op, and has it delivered.
    fn ask(&mut self, by: usize, slot: u16) -> Result<(), DropReason> {
        let request = self.request(by, slot, Some(OP_SIZE_MAX));
        self.deliver(&request)
    }

    fn deliver(&mut self, flight: &Flight) -> Result<(), DropReason> {
        deliver(&mut self.target.nic, self.now, flight, wire::FRAME_LEN_MAX)
    }

    /// A read of the target's own, of a host that answers none.
    fn read_of_its_own(&mut self, slot: u16) {
        let op = CommandOp::Read(Transfer {
            op_size: OP_SIZE_MAX,
            remote_offset: 0,
            local_region: self.target.region,
            local_offset: 0,
        });
        let (slot, responder) = (CommandSlotId(slot), "192.0.2.99".parse().unwrap());
        let command = Command { slot, responder, op, ..Command::NONE };
        self.target.nic.handle_command(self.now, command).unwrap();
    }

    /// Returns the frames that the target sends now.
    fn answers(&mut self) -> Vec<Flight> {
        self.target.transmit(self.now)
    }

    /// Returns the frames that initiator `by` sends for it: the data of what was solicited.
    fn take(&mut self, by: usize, answers: &[Flight]) -> Vec<Flight> {
        for flight in answers {
            let nic = &mut self.initiators[by].nic;
            deliver(nic, self.now, flight, wire::FRAME_LEN_MAX).unwrap();
        }
        self.initiators[by].transmit(self.now)
    }

    fn status(&mut self, by: usize) -> Option<(u16, OpStatus)> {
        let completion = self.initiators[by].nic.poll_completion()?;
        Some((completion.slot.0, completion.status))
    }

    fn target_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; OP_SIZE_MAX as usize];
        self.target.memory.copy_out(0, &mut bytes).unwrap();
        bytes
    }

    fn parked(&self) -> (u64, u64) {
        let gauges = self.target.nic.gauges();
        (gauges.pending_writes_parked, gauges.parked_bytes)
    }
}

#[test]
fn mutations_have_half_of_the_window_and_reads_have_what_they_leave() {
    let mut asked = Asked::with_window(8);
    (0..8).for_each(|slot| asked.ask(0, slot).unwrap());
    assert_eq!(asked.answers().len(), 4);
    assert_eq!(asked.target.nic.window_debited(), 4 * OP_SIZE_MAX);
    assert!(!asked.target.nic.wants_transmit(), "what waits has no room");
    (0..8).for_each(|slot| asked.read_of_its_own(slot));
    assert_eq!(asked.answers().len(), 4, "though mutations wait too, and reads came last");
    assert_eq!(asked.target.nic.window_debited(), 8 * OP_SIZE_MAX);
}

#[test]
fn a_solicited_op_keeps_its_share_until_its_time_is_over_and_another_wants_it() {
    let mut asked = Asked::with_window(1);
    asked.ask(0, 0).unwrap();
    assert_eq!(asked.answers().len(), 1);
    let began = asked.now;
    asked.pass(asked.hold() * 3);
    assert_eq!(asked.parked(), (0, 0), "nobody waits");
    assert_eq!(asked.target.nic.window_debited(), OP_SIZE_MAX);
    assert_eq!(asked.target.nic.poll_timeout(), Some(began + asked.timeout()));
    asked.ask(0, 1).unwrap();
    assert_eq!(asked.parked(), (1, 4096), "as soon as another does");
    assert_eq!((asked.answers().len(), asked.target.nic.window_debited()), (1, OP_SIZE_MAX));
    // The next one waits for its time.
    asked.ask(0, 2).unwrap();
    assert_eq!(asked.target.nic.poll_timeout(), Some(asked.now + asked.hold()));
    asked.pass(asked.hold() - Duration::from_nanos(1));
    assert!(asked.answers().is_empty());
    asked.pass(Duration::from_nanos(1));
    assert!(asked.target.nic.wants_transmit(), "an engine does not sleep over it");
    assert_eq!((asked.answers().len(), asked.parked()), (1, (2, 8192)));
    assert_eq!(asked.target.nic.counters().parked(), 2);
    // All are forgotten in the end.
    asked.pass(asked.timeout());
    assert_eq!((asked.parked(), asked.target.nic.window_debited()), ((0, 0), 0));
    assert_eq!(asked.target.nic.counters().parked_forgotten(), 0, "nobody wanted their entries");
    assert_eq!(asked.target.nic.poll_timeout(), None);
}

#[test]
fn a_read_of_the_host_wants_room_as_another_mutation_does() {
    let mut asked = Asked::with_window(1);
    asked.ask(0, 0).unwrap();
    assert_eq!(asked.answers().len(), 1);
    let op = CommandOp::Read(Transfer {
        op_size: 64,
        remote_offset: 0,
        local_region: asked.target.region,
        local_offset: 0,
    });
    let responder = "192.0.2.99".parse().unwrap();
    let command = Command { slot: CommandSlotId(0), responder, op, ..Command::NONE };
    asked.target.nic.handle_command(asked.now, command).unwrap();
    assert_eq!(asked.target.nic.poll_timeout(), Some(asked.now + asked.hold()));
    asked.pass(asked.hold());
    assert_eq!((asked.answers().len(), asked.parked()), (1, (1, 4096)));
}

#[test]
fn a_command_finds_room_at_once_where_the_time_of_others_is_over() {
    let mut asked = Asked::with_window(1);
    asked.ask(0, 0).unwrap();
    assert_eq!(asked.answers().len(), 1);
    asked.pass(asked.hold());
    assert_eq!(asked.parked(), (0, 0));
    asked.read_of_its_own(0);
    assert_eq!((asked.parked(), asked.answers().len()), ((1, 4096), 1));
}

/// P3: how much may come at most, besides what the window holds.
#[test]
fn parked_ops_are_at_most_one_for_each_entry_beside_a_full_window() {
    let settings = NicConfigBuilder {
        solicitation_window: 2 * OP_SIZE_MAX,
        pending_writes: 4,
        ..NicConfigBuilder::default()
    };
    let mut asked = Asked::by(1, settings);
    for slot in 0..4 {
        asked.ask(0, slot).unwrap();
        assert_eq!(asked.answers().len(), 1);
        asked.pass(asked.hold());
    }
    assert_eq!(asked.parked(), (3, 3 * 4096));
    for slot in 0..2 {
        asked.read_of_its_own(slot);
    }
    assert_eq!(asked.answers().len(), 2);
    assert_eq!((asked.parked(), asked.target.nic.window_debited()), ((4, 4 * 4096), 2 * 4096));
}

#[test]
fn a_trickle_of_data_gains_no_time() {
    let mut asked = Asked::with_window(1);
    let request = asked.request(0, 0, Some(OP_SIZE_MAX));
    asked.deliver(&request).unwrap();
    let solicitations = asked.answers();
    // Its path carries one granule.
    let path = wire::FRAME_LEN_MIN;
    deliver(&mut asked.initiators[0].nic, asked.now, &solicitations[0], path).unwrap();
    let mut data = asked.initiators[0].transmit(asked.now).into_iter();
    assert!(data.len() > 32);
    asked.ask(0, 1).unwrap();
    let part = asked.hold() / 16;
    for _ in 0..16 {
        assert!(asked.answers().is_empty() && asked.parked() == (0, 0));
        asked.deliver(&data.next().unwrap()).unwrap();
        asked.pass(part);
    }
    asked.pass(asked.hold() - part * 16);
    assert_eq!((asked.answers().len(), asked.parked()), (1, (1, 4096)));
}

#[test]
fn the_data_of_a_parked_op_lands_once_and_its_op_ends_well() {
    let mut asked = Asked::with_window(1);
    asked.initiators[0].memory.copy_in(0, &[0x77; OP_SIZE_MAX as usize]).unwrap();
    asked.ask(0, 0).unwrap();
    let solicitations = asked.answers();
    let data = asked.take(0, &solicitations);
    assert!(data.len() > 1);
    // Some of it comes before, some after.
    asked.deliver(&data[0]).unwrap();
    asked.pass(asked.hold());
    asked.ask(0, 1).unwrap();
    let others = asked.answers();
    assert_eq!((others.len(), asked.parked()), (1, (1, 4096)));
    let debited = asked.target.nic.window_debited();
    assert_eq!(asked.deliver(&data[0]), Err(DropReason::Duplicate));
    for flight in &data[1..] {
        asked.deliver(flight).unwrap();
        assert_eq!(asked.target.nic.window_debited(), debited, "not debited again, nor refunded");
    }
    assert_eq!(asked.parked(), (0, 0));
    assert_eq!(asked.target_bytes(), [0x77; OP_SIZE_MAX as usize]);
    asked.target.memory.copy_in(0, &[0; OP_SIZE_MAX as usize]).unwrap();
    for flight in &data {
        assert_eq!(asked.deliver(flight), Err(DropReason::UnknownPendingWrite));
    }
    assert_eq!(asked.target_bytes(), [0; OP_SIZE_MAX as usize]);
    let acknowledgements = asked.answers();
    asked.take(0, &acknowledgements);
    assert_eq!(asked.status(0), Some((0, OpStatus::Ok)));
    // The other's share is whole, and is given back once.
    for flight in asked.take(0, &others) {
        asked.deliver(&flight).unwrap();
    }
    assert_eq!(asked.target.nic.window_debited(), 0);
}

#[test]
fn the_data_of_a_parked_op_does_not_land_after_the_deadline() {
    let mut asked = Asked::with_window(1);
    asked.ask(0, 0).unwrap();
    let solicitations = asked.answers();
    let data = asked.take(0, &solicitations);
    let before = asked.target_bytes();
    let solicited_at = asked.now;
    asked.pass(asked.hold());
    asked.ask(0, 1).unwrap();
    assert_eq!((asked.answers().len(), asked.parked()), (1, (1, 4096)));
    asked.now = solicited_at + asked.timeout() * 7 / 8;
    assert_eq!(asked.deliver(&data[0]), Err(DropReason::DataLate));
    asked.now = solicited_at + asked.timeout();
    asked.target.nic.handle_timeout(asked.now);
    assert_eq!(asked.parked(), (0, 0));
    assert_eq!(asked.deliver(&data[0]), Err(DropReason::UnknownPendingWrite));
    assert_eq!(asked.target_bytes(), before);
    assert_eq!(asked.target.nic.counters().late_effects(), 0);
}

#[test]
fn the_op_that_was_parked_longest_is_forgotten_where_entries_are_wanted() {
    let settings = NicConfigBuilder {
        solicitation_window: OP_SIZE_MAX,
        pending_writes: 4,
        ..NicConfigBuilder::default()
    };
    let mut asked = Asked::by(2, settings);
    let before = asked.target_bytes();
    let mut data = Vec::new();
    for slot in 0..4 {
        asked.ask(0, slot).unwrap();
        let solicitations = asked.answers();
        data.push(asked.take(0, &solicitations));
        asked.pass(asked.hold());
    }
    // Each was parked for the next, and none counts for its class: of four, it may have three.
    assert_eq!((asked.parked().0, asked.target.nic.gauges().pending_writes_used), (3, [1, 0]));
    asked.ask(1, 0).unwrap();
    assert_eq!(asked.target.nic.counters().parked_forgotten(), 1);
    // The first one's data changes nothing, nor does its entry's new op.
    for flight in &data[0] {
        assert_eq!(asked.deliver(flight), Err(DropReason::UnknownPendingWrite));
    }
    assert_eq!(asked.target_bytes(), before);
    for flight in data[1].clone() {
        asked.deliver(&flight).unwrap();
    }
    let answers = asked.answers();
    let (own, others): (Vec<_>, Vec<_>) =
        answers.into_iter().partition(|it| it.transmit.destination == asked.initiators[0].addr);
    asked.take(0, &own);
    assert_eq!(asked.status(0), Some((1, OpStatus::Ok)));
    for flight in asked.take(1, &others) {
        asked.deliver(&flight).unwrap();
    }
    let acknowledgements = asked.answers();
    asked.take(1, &acknowledgements);
    assert_eq!(asked.status(1), Some((0, OpStatus::Ok)));
    asked.pass(asked.timeout());
    let mut rest = [asked.status(0), asked.status(0), asked.status(0)];
    rest.sort_by_key(|it| it.map(|it| it.0));
    assert_eq!(rest, [0, 2, 3].map(|slot| Some((slot, OpStatus::Timeout))));
}

#[test]
fn the_longest_list_makes_room_for_shorter_ones() {
    let settings = NicConfigBuilder {
        solicitation_window: OP_SIZE_MAX,
        pending_writes: 8,
        ..NicConfigBuilder::default()
    };
    let mut asked = Asked::by(2, settings);
    // One is solicited, five wait: the share of the class.
    for slot in 0..6 {
        asked.ask(0, slot).unwrap();
        if slot == 0 {
            assert_eq!(asked.answers().len(), 1);
        }
    }
    assert_eq!(
        asked.ask(0, 6),
        Err(DropReason::PendingWriteShareFull),
        "its own list is the longest"
    );
    let nacks = asked.answers();
    asked.take(0, &nacks);
    assert_eq!(asked.status(0), Some((6, OpStatus::Nack)));
    for slot in 0..3 {
        asked.ask(1, slot).unwrap();
        let nacks = asked.answers();
        asked.take(0, &nacks);
        assert_eq!(asked.status(0), Some((slot + 1, OpStatus::Nack)), "the oldest");
    }
    assert_eq!(asked.ask(1, 3), Err(DropReason::PendingWriteShareFull), "now its own is");
    assert_eq!(asked.target.nic.counters().pushed_out(), 3);
    // And they take turns, whoever came first.
    let nacks = asked.answers();
    asked.take(1, &nacks);
    let mut solicited = Vec::new();
    for _ in 0..4 {
        asked.pass(asked.hold());
        let answers = asked.answers();
        assert_eq!(answers.len(), 1);
        solicited.push(answers[0].transmit.destination);
    }
    assert!(solicited.windows(2).all(|pair| pair[0] != pair[1]), "{solicited:?}");
}

#[test]
fn a_class_that_has_had_its_share_makes_room_for_the_other() {
    let settings = NicConfigBuilder {
        solicitation_window: OP_SIZE_MAX,
        pending_writes: 4,
        ..NicConfigBuilder::default()
    };
    let mut pair = Pair::with(settings);
    pair.a.nic.configure_slots(8..16, Some(PID));
    let class = ClassOfService::Throughput;
    for slot in 0..4 {
        pair.issue(Command { class, ..pair.write(slot, 0, 64) });
        let request = pair.requests().remove(0);
        let result = pair.deliver_to_b(&request);
        assert_eq!(result.is_ok(), slot < 3, "three quarters");
    }
    pair.issue(pair.write(8, 0, 64));
    let request = pair.requests().remove(0);
    pair.deliver_to_b(&request).unwrap();
    // All are taken. Of three that wait in the other class one makes room.
    pair.issue(pair.write(9, 0, 64));
    let request = pair.requests().remove(0);
    pair.deliver_to_b(&request).unwrap();
    assert_eq!(pair.b.nic.gauges().pending_writes_used, [2, 2]);
    assert_eq!(pair.b.nic.counters().pushed_out(), 1);
}

#[test]
fn half_of_the_entries_are_for_those_that_wait() {
    let settings = NicConfigBuilder { pending_writes: 9, ..NicConfigBuilder::default() };
    let mut asked = Asked::by(1, settings);
    for slot in 0..7 {
        let request = asked.request(0, slot, Some(1));
        asked.deliver(&request).unwrap();
    }
    assert_eq!(asked.answers().len(), 5, "though the window has room for all");
    assert!(!asked.target.nic.wants_transmit());
    // The time of those that hold entries is that of those that hold room.
    asked.pass(asked.hold());
    assert_eq!((asked.answers().len(), asked.parked()), (2, (2, 2)));
}

#[test]
fn a_rekey_takes_the_same_way() {
    let settings = NicConfigBuilder { pending_writes: 4, ..NicConfigBuilder::default() };
    let mut asked = Asked::by(2, settings);
    // Of 16 bytes each, entries bound them.
    for slot in 0..3 {
        let request = asked.request(0, slot, None);
        asked.deliver(&request).unwrap();
    }
    assert_eq!((asked.answers().len(), asked.target.nic.window_debited()), (2, 32));
    let honest = asked.request(1, 0, None);
    asked.deliver(&honest).unwrap();
    assert_eq!(asked.target.nic.counters().pushed_out(), 1, "one of the other's, which waited");
    let nacks = asked.answers();
    asked.take(0, &nacks);
    asked.pass(asked.hold());
    let solicitations = asked.answers();
    assert_eq!((solicitations.len(), asked.parked()), (1, (1, 16)));
    for flight in asked.take(1, &solicitations) {
        asked.deliver(&flight).unwrap();
    }
    let acknowledgements = asked.answers();
    asked.take(1, &acknowledgements);
    assert_eq!(asked.status(1), Some((0, OpStatus::Ok)));
}

/// Otherwise four solicitations of the throughput class were a turn's work beside small reads, and
/// honest ones waited in a queue that grew.
#[test]
fn solicitations_notices_and_requests_to_one_host_count_by_their_bytes() {
    for (offset, is_answer) in [(0, true), (u64::MAX, true), (0, false)] {
        let mut pair = Pair::new();
        for slot in 0..8 {
            let class = ClassOfService::Throughput;
            let command =
                if is_answer { pair.write(slot, offset, 64) } else { pair.read(slot, 0, 1024) };
            pair.issue(Command { class, ..command });
        }
        let sender = if is_answer {
            for request in pair.requests() {
                let _ = pair.deliver_to_b(&request);
            }
            &mut pair.b
        } else {
            &mut pair.a
        };
        let mut room = [[0; wire::FRAME_LEN_MAX]; 8];
        let mut frames = room.each_mut().map(|room| TxFrame::new(room));
        let mut quantum = Quantum::beside_latency(4096);
        let sent = sender.nic.poll_transmits(pair.now, &mut frames, &mut quantum);
        assert_eq!(sent, 8);
        assert_eq!(frames[0].bytes[1] == 6, is_answer && offset == 0, "a solicitation");
    }
}
