//! Answers that teach an engine of several where they come to, and those that do not.

use super::*;
use crate::{backend::RxPacket, port::SourcePort};

/// An initiator that is the first of two engines, and a peer.
fn pair() -> Pair {
    let settings = NicConfigBuilder::default();
    let [a, b] = ["192.0.2.1", "192.0.2.2"].map(|it| it.parse::<HostAddr>().unwrap());
    let place = NicPlace::at(a).with(|it| it.engines = 2);
    Pair::of(Host::at(a, place, settings), Host::at(b, NicPlace::at(b), settings))
}

fn arrive(pair: &mut Pair, flight: &Flight, is_handed_over: bool) -> Result<(), DropReason> {
    let mut bytes = flight.bytes.clone();
    let Transmit { source, destination, port, source_port, .. } = flight.transmit;
    let bytes = &mut bytes[..];
    let packet =
        RxPacket { source, destination, port, source_port, reply_len_max: 1472, link: None, bytes };
    let frame = RxFrame { is_handed_over, ..RxFrame::alone(packet) };
    pair.a.nic.handle_frame(pair.now, &pair.now, frame)
}

/// The source ports of the next eight ops, which are lost.
fn next_ports(pair: &mut Pair) -> Vec<SourcePort> {
    (0..8)
        .map(|slot| {
            pair.advance(Duration::from_micros(7));
            pair.issue(pair.read(slot, 0, 64));
            pair.requests()[0].transmit.source_port
        })
        .collect()
}

/// Whether ops go from `port` now. Those that are under way are lost: their ports are forgotten.
fn prefers(pair: &mut Pair, port: SourcePort) -> bool {
    pair.advance(Duration::from_secs(1));
    while pair.a.nic.poll_completion().is_some() {}
    let uses = next_ports(pair).into_iter().filter(|&it| it == port).count();
    assert!([0, 6, 7, 8].contains(&uses), "{uses} of 8");
    uses > 0
}

/// An op whose frames come to the peer, and its answers here as `is_handed_over` says.
fn run(pair: &mut Pair, command: Command, is_handed_over: bool) -> SourcePort {
    pair.issue(command);
    let mut port = None;
    loop {
        let (requests, answers) = (pair.requests(), pair.responses());
        if requests.is_empty() && answers.is_empty() {
            return port.unwrap();
        }
        for flight in &requests {
            assert_eq!(
                *port.get_or_insert(flight.transmit.source_port),
                flight.transmit.source_port
            );
            pair.deliver_to_b(flight).unwrap();
        }
        for flight in &answers {
            assert_eq!(flight.transmit.source_port, port.unwrap(), "answers leave from it");
            arrive(pair, flight, is_handed_over).unwrap();
        }
    }
}

#[test]
fn answers_that_come_here_teach_their_port_and_those_that_are_handed_over_do_not() {
    for is_write in [false, true] {
        for is_handed_over in [false, true] {
            let mut pair = pair();
            let command = if is_write { pair.write(0, 0, 4096) } else { pair.read(0, 0, 4096) };
            let port = run(&mut pair, command, is_handed_over);
            assert_eq!(pair.status(), OpStatus::Ok);
            assert_eq!(prefers(&mut pair, port), !is_handed_over);
        }
    }
}

#[test]
fn a_port_is_forgotten_once_its_answers_are_handed_over_or_its_op_ends_with_timeout_or_nack() {
    for end in [OpStatus::Ok, OpStatus::Timeout, OpStatus::Nack] {
        let mut pair = pair();
        let command = pair.read(0, 0, 64);
        let port = run(&mut pair, command, false);
        assert_eq!(pair.status(), OpStatus::Ok);
        // Some op goes from it again.
        let request = loop {
            pair.advance(Duration::from_micros(7));
            pair.issue(pair.read(0, 0, 64));
            let request = pair.requests().remove(0);
            if request.transmit.source_port == port {
                break request;
            }
            pair.advance(Duration::from_secs(1));
            assert_eq!(pair.status(), OpStatus::Timeout);
        };
        match end {
            OpStatus::Timeout => pair.advance(Duration::from_secs(1)),
            OpStatus::Nack => {
                let settings = NicConfigBuilder { inbound_queue: 1, ..Default::default() };
                pair.b = Host::at(pair.b.addr, NicPlace::at(pair.b.addr), settings);
                // Another op takes the only place of the peer's queue, and its answer is lost.
                pair.issue(pair.read(1, 0, 64));
                let first = pair.requests().remove(0);
                pair.deliver_to_b(&first).unwrap();
                pair.deliver_to_b(&request).unwrap_err();
                let mut answers = pair.responses();
                answers
                    .retain(|it| matches!(FrameView::parse(&it.bytes), Ok(FrameView::Failure(_))));
                arrive(&mut pair, &answers[0], false).unwrap();
            }
            _ => {
                pair.deliver_to_b(&request).unwrap();
                let answer = pair.responses().remove(0);
                arrive(&mut pair, &answer, true).unwrap();
            }
        }
        assert_eq!(pair.completion().status, end);
        assert!(!prefers(&mut pair, port), "{end:?}");
    }
}

#[test]
fn an_answer_that_is_not_opened_or_not_from_the_ops_port_teaches_nothing() {
    type Change = fn(&mut Flight);
    let changes: [(Change, bool); 4] = [
        (|_| (), true),
        (|it| it.bytes[100] ^= 1, false),
        (|it| it.transmit.source_port = SourcePort(10_472), false),
        (|it| it.transmit.source_port.0 ^= 1, false),
    ];
    for (change, teaches) in changes {
        let mut pair = pair();
        let command = pair.read(0, 0, 64);
        let mut answer = pair.responses_of(command).remove(0);
        let port = answer.transmit.source_port;
        change(&mut answer);
        let changed = answer.transmit.source_port;
        if arrive(&mut pair, &answer, false).is_err() {
            pair.advance(Duration::from_secs(1));
        }
        let _ = pair.completion();
        assert_eq!(prefers(&mut pair, port), teaches);
        assert!(teaches || !prefers(&mut pair, changed));
    }
}

#[test]
fn an_answer_of_an_op_before_teaches_nothing_of_the_one_after_it() {
    let mut pair = pair();
    let command = pair.read(0, 0, 64);
    let old = pair.responses_of(command).remove(0);
    pair.advance(Duration::from_secs(1));
    assert_eq!(pair.status(), OpStatus::Timeout);
    pair.issue(command);
    let port = pair.requests()[0].transmit.source_port;
    let mut recorded = old.clone();
    recorded.transmit.source_port = port;
    for is_handed_over in [false, true] {
        arrive(&mut pair, &recorded, is_handed_over).unwrap_err();
    }
    pair.advance(Duration::from_secs(1));
    assert_eq!(pair.status(), OpStatus::Timeout);
    assert!(!prefers(&mut pair, port) && !prefers(&mut pair, old.transmit.source_port));
}

#[test]
fn an_engine_that_is_alone_has_no_table_and_a_port_by_its_turn() {
    let mut one = Pair::new();
    assert_eq!(entries(&one.a.nic), 0);
    assert_eq!(entries(&pair().a.nic), 1024);
    for _ in 0..50 {
        one.issue(one.read(0, 0, 64));
        let requests = one.requests();
        assert_eq!(requests[0].transmit.source_port, SourcePort::of_turn(one.now));
        one.deliver_to_b(&requests[0]).unwrap();
        let answer = one.responses().remove(0);
        one.deliver_to_a(&answer).unwrap();
        assert_eq!(one.status(), OpStatus::Ok);
        one.advance(Duration::from_micros(7));
    }
}

fn entries(nic: &Nic) -> usize {
    let tables = nic.memory();
    tables.iter().find(|it| it.table == "source ports learnt").unwrap().entries
}
