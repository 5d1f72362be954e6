//! A sender that has lost its buffers: the others go on, and it is told that it is out.

use super::*;

#[test]
fn a_sender_that_is_gone_is_lent_nothing_more_and_what_it_had_is_taken_back() {
    let mut it = Ends::pool(6, 5);
    it.settle();
    assert_eq!(it.has(), [3, 3]);
    // Of the other's messages the first is there, the second is not, the third is; of ours none.
    let names = [0, 1, 2].map(|number| it.send(1, &message(1, number, 100)).unwrap());
    it.send(0, b"ours").unwrap();
    it.bench.turn();
    it.process(1).engine.taken.truncate(3);
    let Bench { other, .. } = &mut it.bench;
    other.apply(2);
    other.apply(0);
    assert_eq!(it.poll(), [Ok(()), Ok(())]);
    assert_eq!(it.senders[1].test(names[2]), SendState::Accepted);

    let back = it.receiver.take_back(&it.bench.host, OTHER).unwrap();
    assert_eq!((back, it.has()), (vec![], vec![3]), "a pool has them");
    let Bench { us, other, .. } = &mut it.bench;
    assert_eq!(other.apply(0), OpStatus::RemoteAuthenticationFailure, "it wakes up late");
    assert_eq!(us.apply(0), OpStatus::RemoteAuthenticationFailure);
    it.bench.turn();
    it.settle();
    assert_eq!(it.receive(), Some((OTHER, message(1, 0, 100))), "it had come in order");
    assert_eq!(it.receive(), Some((PEER, b"ours".to_vec())), "it was written in the next epoch");
    assert_eq!(it.receive(), None);
    it.settle();
    assert_eq!(it.has(), [5], "what the other had is ours");
    // It was told so, and what was refused is refused for good.
    let status = CallStatus::Failed(OpStatus::RemoteAuthenticationFailure);
    assert_eq!(it.poll().remove(1), Err(SendError::Broken { handle: names[1], status }));
    let states = names.map(|name| it.senders[1].test(name));
    assert_eq!(states, [SendState::Accepted, SendState::Failed(status), SendState::Accepted]);
    assert_eq!(it.senders[1].poll_timeout(), None);

    // It comes back, and is a sender like any other.
    it.senders[1] = join(&mut it.bench, &mut it.receiver, OTHER);
    it.settle();
    it.send(1, b"again").unwrap();
    it.settle();
    assert_eq!(it.receive(), Some((OTHER, b"again".to_vec())));
}

#[test]
fn a_sender_without_grants_for_the_epoch_is_told_so() {
    let mut it = Ends::pool(3, 1);
    let nobody = Peer { pid: rma_core::addr::Pid(99), ..PEER };
    it.settle();
    for epoch in 0..3 {
        it.send(0, b"still in").unwrap();
        it.settle();
        assert!(it.receive().is_some(), "epoch {epoch}");
        it.settle();
        it.receiver.take_back(&it.bench.host, nobody).unwrap();
        it.settle();
    }
    assert_eq!(it.send(0, b"out"), Err(SendError::Revoked { epochs: 3 }));
    assert_eq!(it.poll(), vec![Err(SendError::Revoked { epochs: 3 }); 2]);
}

/// The other sender is put out, which has no buffer.
fn put_out() -> Ends {
    let mut it = Ends::unlent();
    it.settle();
    assert_eq!(it.send(1, b"no offer"), Err(SendError::Full));
    let back = it.receiver.take_back(&it.bench.host, OTHER).unwrap();
    assert_eq!((back, it.has()), (vec![], vec![0]));
    it.poll();
    assert_eq!(it.bench.us.engine.taken.len(), 1, "it is being told");
    it
}

/// The other is out, and knows it; the first goes on.
fn check_told(it: &mut Ends) {
    let out = Err(SendError::Revoked { epochs: 3 });
    assert_eq!((it.poll().remove(1), it.send(1, b"out")), (out, out.map(|()| unreachable!())));
    it.receiver.offer(PEER, 0).unwrap();
    it.settle();
    it.send(0, b"in").unwrap();
    it.settle();
    assert_eq!((it.receive(), it.receive()), (Some((PEER, b"in".to_vec())), None));
    assert!(it.bench.us.engine.taken.is_empty() && it.receiver.poll_timeout().is_none());
}

//= channels#4.5-indirect
//= type=test
#[test]
fn a_sender_that_is_out_and_has_no_buffer_is_told_so_once() {
    let mut it = put_out();
    it.settle();
    check_told(&mut it);
    // A peer that was never accepted has not said how it is told.
    let mut it = Ends::unlent();
    it.receiver.take_back(&it.bench.host, OTHER).unwrap();
    it.settle();
    it.bench.host.peer = PEER;
    let half = it.receiver.admit(&it.bench.host, OTHER).unwrap();
    it.receiver.take_back(&it.bench.host, OTHER).unwrap();
    it.poll();
    assert!(it.bench.us.engine.taken.is_empty());
    // Its later word is too late, and does no harm.
    it.bench.host.peer = OTHER;
    let (_, terms) = Sender::join(&it.bench.host, 0, PEER, half.terms()).unwrap();
    it.receiver.accept(half, &terms).unwrap();
    assert_eq!(it.receiver.offer(OTHER, 0), Err(OfferError::NoSender { peer: OTHER }));
}

#[test]
fn a_farewell_that_is_lost_is_told_again_and_one_that_comes_twice_is_no_news() {
    let lost = [
        OpStatus::Timeout,
        OpStatus::DispatchTimeout,
        OpStatus::Nack,
        OpStatus::RemoteNotReady,
        OpStatus::RemoteAuthenticationFailure,
    ];
    for status in lost {
        let mut it = put_out();
        for _ in 0..3 {
            it.bench.fail(0, status);
            while it.bench.us.engine.taken.is_empty() {
                assert_eq!(it.poll(), [Ok(()), Ok(())], "{status:?}");
                it.bench.later(Duration::from_millis(5));
            }
        }
        it.settle();
        check_told(&mut it);
    }
    // It came, and nobody was told that it did.
    let mut it = put_out();
    for _ in 0..2 {
        let event = Event {
            op_type: OpType::Notify,
            receive: Receive(0),
            len: 0,
            immediate: Offer::NO_MORE.to_word(),
            initiator: PEER.address,
            pid: PEER.pid,
            region: it.senders[1].queue().id(),
            region_offset: 0,
            at: Instant::ZERO,
        };
        it.bench.host.hosts.event(it.senders[1].queue(), event);
    }
    it.bench.fail(0, OpStatus::Timeout);
    it.settle();
    check_told(&mut it);
}

#[test]
fn a_dead_sender_is_told_for_a_while_and_then_given_up() {
    for status in [OpStatus::Timeout, OpStatus::RemoteAuthenticationFailure] {
        let mut it = put_out();
        let mut told = 0;
        let end = it.bench.now + 4 * IndirectConfig::default().patience;
        while it.bench.now < end {
            while !it.bench.us.engine.taken.is_empty() {
                it.bench.fail(0, status);
                told += 1;
            }
            it.bench.later(Duration::from_millis(5));
            assert_eq!(it.poll(), [Ok(()), Ok(())]);
        }
        assert!(told > 4, "{told}");
        assert!(it.bench.us.engine.taken.is_empty() && it.receiver.poll_timeout().is_none());
    }
}

#[test]
fn a_sender_that_is_admitted_again_is_not_told_what_its_seat_before_is() {
    let mut it = put_out();
    let new = join(&mut it.bench, &mut it.receiver, OTHER);
    let mut old = core::mem::replace(&mut it.senders[1], new);
    it.receiver.offer(OTHER, 0).unwrap();
    // The first report comes last.
    it.poll();
    assert_eq!(it.bench.us.engine.taken.len(), 2);
    it.bench.us.engine.taken.reverse();
    it.settle();
    let Bench { other, now, .. } = &mut it.bench;
    let polled = crate::sender::Sender::poll(&mut old, &mut other.link, *now);
    assert_eq!(polled, Err(SendError::Revoked { epochs: 3 }));
    it.send(1, b"again").unwrap();
    it.settle();
    assert_eq!(it.receive(), Some((OTHER, b"again".to_vec())));
}

#[test]
fn an_offer_that_comes_after_the_farewell_lets_nobody_in() {
    let mut it = Ends::unlent();
    it.receiver.offer(OTHER, 0).unwrap();
    it.poll();
    it.receiver.take_back(&it.bench.host, OTHER).unwrap();
    it.poll();
    assert_eq!(it.bench.us.engine.taken.len(), 2);
    it.bench.us.engine.taken.reverse();
    it.settle();
    check_told(&mut it);
}
