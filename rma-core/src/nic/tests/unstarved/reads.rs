//! Reads of others: the same turns, and the same way to make room.

use super::*;

/// Reads of two hosts at a third, moved by hand.
struct Readers {
    now: Instant,
    target: Host,
    readers: [Host; 2],
}

impl Readers {
    fn new(settings: NicConfigBuilder) -> Self {
        let host = |addr| {
            let mut host = Host::new(addr, settings);
            host.nic.configure_slots(8..64, Some(PID));
            host
        };
        let readers = [host("192.0.2.2"), host("192.0.2.3")];
        Self { now: Instant::from_nanos(1_000), target: host("192.0.2.1"), readers }
    }

    fn ask(&mut self, by: usize, slot: u16, class: ClassOfService, op_size: u32) -> bool {
        let (initiator, responder) = (self.readers[by].addr, self.target.addr);
        let binding = KeyBinding { initiator, responder, pid: PID, op_type: OpType::Read };
        let command = Command {
            slot: CommandSlotId(slot),
            class,
            responder,
            remote_region: self.target.region,
            key: crate::crypto::RegionKeySchedule::new(&self.target.key).derive(&binding),
            op: CommandOp::Read(Transfer {
                op_size,
                remote_offset: 0,
                local_region: self.readers[by].region,
                local_offset: 0,
            }),
        };
        self.readers[by].nic.handle_command(self.now, command).unwrap();
        let request = self.readers[by].transmit(self.now).remove(0);
        deliver(&mut self.target.nic, self.now, &request, wire::FRAME_LEN_MAX).is_ok()
    }

    /// Sends what the target has, and tells which reader and slot each frame is for, and whether it
    /// is a NACK.
    fn answers(&mut self) -> Vec<(usize, u16, bool)> {
        let answers = self.target.transmit(self.now);
        let told = answers.iter().map(|flight| {
            let by = usize::from(flight.transmit.destination == self.readers[1].addr);
            let nic = &mut self.readers[by].nic;
            deliver(nic, self.now, flight, wire::FRAME_LEN_MAX).unwrap();
            let view = FrameView::parse(&flight.bytes).unwrap();
            let slot = u16::from_be_bytes([flight.bytes[12], flight.bytes[13]]);
            (by, slot, matches!(view, FrameView::Failure(_)))
        });
        told.collect()
    }
}

#[test]
fn a_single_read_does_not_wait_behind_all_requests_of_another() {
    let mut readers = Readers::new(NicConfigBuilder::default());
    for slot in 0..20 {
        assert!(readers.ask(0, slot, ClassOfService::Latency, 64));
    }
    assert!(readers.ask(1, 0, ClassOfService::Latency, 64));
    let answers = readers.answers();
    let place = answers.iter().position(|&(by, ..)| by == 1).unwrap();
    assert!(place <= 1, "{answers:?}");
    let own: Vec<u16> = answers.iter().filter(|it| it.0 == 0).map(|it| it.1).collect();
    assert_eq!(own, (0..20).collect::<Vec<_>>(), "in order of arrival among one's own");
}

#[test]
fn an_op_of_several_frames_is_a_turn() {
    let mut readers = Readers::new(NicConfigBuilder::default());
    for slot in 0..3 {
        (0..2).for_each(|by| assert!(readers.ask(by, slot, ClassOfService::Latency, 4096)));
    }
    let answers = readers.answers();
    assert_eq!(answers.len(), 6 * 3, "three frames each");
    for op in answers.chunks(3) {
        assert!(op.iter().all(|frame| frame == &op[0]), "{answers:?}");
    }
    let turns: Vec<usize> = answers.chunks(3).map(|op| op[0].0).collect();
    assert!(turns.windows(2).all(|pair| pair[0] != pair[1]), "{turns:?}");
}

#[test]
fn a_full_queue_makes_room_for_a_reader_with_fewer_reads_in_it() {
    for class in ClassOfService::ALL {
        let settings = NicConfigBuilder { inbound_queue: 8, ..NicConfigBuilder::default() };
        let mut readers = Readers::new(settings);
        (0..8).for_each(|slot| assert!(readers.ask(0, slot, class, 64)));
        assert!(!readers.ask(0, 8, class, 64), "its own list is the longest");
        (0..4).for_each(|slot| assert!(readers.ask(1, slot, class, 64)));
        assert!(!readers.ask(1, 4, class, 64), "they have as many");
        let answers = readers.answers();
        let nacked = |by| {
            let nacks = answers.iter().filter(move |it| it.0 == by && it.2);
            nacks.map(|it| it.1).collect::<Vec<_>>()
        };
        assert_eq!((nacked(0), nacked(1)), (vec![8, 0, 1, 2, 3], vec![4]), "the oldest");
        assert_eq!(readers.target.nic.counters().pushed_out(), 4);
        assert_eq!(readers.target.nic.counters().drops(DropReason::InboundQueueFull), 2);
        let completed = |host: &mut Host| {
            core::iter::from_fn(|| host.nic.poll_completion()).fold([0, 0], |[ok, nack], it| {
                match it.status {
                    OpStatus::Ok => [ok + 1, nack],
                    OpStatus::Nack => [ok, nack + 1],
                    other => panic!("{other}"),
                }
            })
        };
        assert_eq!(readers.readers.each_mut().map(completed), [[4, 5], [4, 1]]);
        assert_eq!(readers.target.nic.gauges().inbound_read_bytes, [0, 0]);
    }
}

/// Readers that may have two ops of 4 KiB before a read.
fn slow_readers() -> Readers {
    let settings = NicConfigBuilder {
        timing: Timing {
            dispatch_timeout: Duration::from_millis(2),
            timeout: Duration::from_millis(5),
        },
        rtt: Duration::from_millis(1),
        bandwidth: 4_096_000,
        ..NicConfigBuilder::default()
    };
    Readers::new(settings)
}

/// A queue that is too deep in bytes is full as well.
#[test]
fn so_many_bytes_before_a_read_make_room_too() {
    let mut readers = slow_readers();
    let class = ClassOfService::Throughput;
    let taken: Vec<bool> = (0..5).map(|slot| readers.ask(0, slot, class, OP_SIZE_MAX)).collect();
    assert_eq!(taken, [true, true, true, false, false], "two ops of 4 KiB may wait before one");
    assert!(readers.ask(1, 0, class, OP_SIZE_MAX));
    assert_eq!(readers.target.nic.counters().pushed_out(), 1);
    assert_eq!(readers.target.nic.gauges().inbound_read_bytes, [0, 3 * 4096]);
}

/// Otherwise more bytes waited with each, and all answers were late.
#[test]
fn small_reads_do_not_make_room_for_large_ones_where_bytes_are_too_many() {
    let mut readers = slow_readers();
    let class = ClassOfService::Throughput;
    (0..40).for_each(|slot| assert!(readers.ask(0, slot, class, 64)));
    let taken = (0..40).filter(|&slot| readers.ask(1, slot, class, OP_SIZE_MAX)).count();
    assert_eq!(taken, 2);
    assert_eq!(readers.target.nic.gauges().inbound_read_bytes, [0, 40 * 64 + 2 * 4096]);
    assert!(readers.ask(1, 40, class, 64), "one that is no larger has its place");
    assert_eq!(readers.target.nic.counters().pushed_out(), 1);
}

/// As mutations do: a host that reads as fast as it can, and is never served in time, leaves others
/// their share.
#[test]
fn a_flood_of_reads_of_one_host_leaves_another_its_turns() {
    let settings = NicConfigBuilder { inbound_queue: 16, ..NicConfigBuilder::default() };
    let mut net = Net::new(4, settings);
    let mut honest = Load::start(&mut net, (HONEST, TARGET), OpType::Read, 4);
    let mut flood = Load::start(&mut net, (USELESS, TARGET), OpType::Read, 400);
    let until = net.now + Duration::from_millis(20);
    while net.now < until {
        net.turn();
        honest.turn(&mut net);
        flood.turn(&mut net);
    }
    assert!(flood.of(OpStatus::Nack) > 400, "{:?}", flood.ended);
    assert!(honest.failed() * 100 < honest.of(OpStatus::Ok), "{:?}", honest.ended);
}
