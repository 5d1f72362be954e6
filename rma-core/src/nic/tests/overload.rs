//! A responder that is asked for more than it can send.

use super::*;

/// Otherwise a responder that is asked for more than it can send would send nothing but refusals, and each of
/// them makes an initiator ask again.
#[test]
fn refusals_and_responses_take_turns_so_an_overloaded_responder_goes_on_serving() {
    const TURNS: usize = 100;
    let mut pair = Pair::with(NicConfigBuilder { inbound_queue: 2, ..NicConfigBuilder::default() });
    for slot in 0..8 {
        pair.issue(pair.read(slot, 0, OP_SIZE_MAX));
    }
    let requests = pair.requests();
    let (mut served, mut refused) = (0, 0);
    let mut out = [0; wire::FRAME_LEN_MAX];
    for _ in 0..TURNS {
        // Each request asks for three frames, and for each request one can be sent.
        for request in &requests {
            let _ = pair.deliver_to_b(request);
        }
        for _ in &requests {
            let sent = pair.b.nic.poll_transmit(pair.now, &mut out).unwrap();
            match FrameView::parse(&out[..sent.len]).unwrap() {
                FrameView::ReadResponse(_) => served += 1,
                _ => refused += 1,
            }
        }
    }
    let half = TURNS * requests.len() / 2;
    assert_eq!((served, refused), (half, half));
}

#[test]
fn notices_beyond_what_may_wait_are_counted_and_not_sent() {
    let mut pair = Pair::new();
    pair.issue(pair.read(0, u64::MAX, 1));
    let request = pair.requests().remove(0);
    for _ in 0..300 {
        assert_eq!(pair.deliver_to_b(&request), Err(DropReason::RequestOutOfBounds));
    }
    assert_eq!(pair.responses().len(), 256);
    assert_eq!(pair.b.nic.counters().drops(DropReason::NoticeQueueFull), 44);
}

fn slot_of(flight: &Flight) -> u16 {
    u16::from_be_bytes([flight.bytes[12], flight.bytes[13]])
}

//= 1rma#4.3-two-arbiters
//= type=test
#[test]
fn the_classes_take_turns_at_the_responder_too() {
    let mut pair = Pair::new();
    let mut requests = Vec::new();
    for slot in 0..6 {
        let class = if slot < 4 { ClassOfService::Throughput } else { ClassOfService::Latency };
        pair.issue(Command { class, ..pair.read(slot, 0, 64) });
        requests.append(&mut pair.requests());
    }
    assert_eq!(requests.iter().map(slot_of).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    for request in &requests {
        pair.deliver_to_b(request).unwrap();
    }
    let served: Vec<u16> = pair.responses().iter().map(slot_of).collect();
    assert_eq!(served, [4, 0, 5, 1, 2, 3]);
}

#[test]
fn own_ops_and_those_of_others_take_turns() {
    let mut pair = Pair::new();
    for slot in 0..4 {
        pair.issue(pair.read(slot, 0, 64));
        let (responder, local_region) = (pair.a.addr, pair.b.region);
        let op = CommandOp::Read(Transfer { local_region, ..pair.transfer(0, 64) });
        let own = Command { responder, ..pair.command(slot, op) };
        pair.b.nic.handle_command(pair.now, own).unwrap();
    }
    for request in pair.requests() {
        pair.deliver_to_b(&request).unwrap();
    }
    let requests: Vec<bool> = pair
        .responses()
        .iter()
        .map(|flight| matches!(FrameView::parse(&flight.bytes).unwrap(), FrameView::ReadRequest(_)))
        .collect();
    assert_eq!(requests, [false, true, false, true, false, true, false, true]);
}
