//! Futures of channels against an engine in the test's hands: who is woken, and what becomes of
//! messages and buffers when futures are dropped.

use core::{
    future::{Future, poll_fn, ready},
    pin::{Pin, pin},
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    task::{Context, Poll, Waker},
    time::Duration,
};
use std::{
    sync::{Arc, Mutex},
    task::Wake,
    thread,
};

use rma_channel::{
    Blocking as _, Link, Outgoing as _, SendError, SendState,
    send_recv::bufferless::{Receiver, Sender},
    write_slot::immediate,
};
use rma_core::{
    command::Command, executor::CallStatus, op::OpStatus, region::RegisteredRegion, time::Instant,
};

use super::{state::End, *};
use crate::{
    BufferPool, ChannelError, RegionBuf,
    channels::tests::{Bench, OK, word_of},
    polling::shared::After,
    scripted::{Fate, Scripted, local},
};

const GONE: ChannelError = ChannelError::Wait(WaitError::EngineGone);

/// A link of futures, its ends, and its engine.
struct Ends {
    channels: AsyncChannels,
    engine: Scripted,
    rx: Rx<Receiver>,
    /// The sender, which has room for one word.
    tx: Tx<Sender>,
    /// The sender of the slot, which has room for one message, and the word that tells it of more.
    slot: Tx<immediate::Sender>,
    tail: RegisteredRegion,
    pool: BufferPool,
}

impl Ends {
    fn new() -> Self {
        let Bench { channels, engine, receiver, sender, slot: (slot, tail) } = Bench::new();
        let channels = AsyncChannels::new(channels);
        let rx = channels.receiver(receiver);
        let (tx, slot) = (channels.sender(sender), channels.sender(slot));
        let pool = BufferPool::new(local(4 * 64), 64).unwrap();
        Self { channels, engine, rx, tx, slot, tail, pool }
    }

    fn buf(&self, bytes: &[u8]) -> RegionBuf {
        let mut buf = self.pool.try_acquire().unwrap();
        buf.set_len(bytes.len());
        buf.write(0, bytes).unwrap();
        buf
    }

    /// The next command, which is there.
    fn next(&mut self) -> Command {
        self.engine.take().unwrap()
    }

    /// Ends a command.
    fn end(&mut self, command: &Command, fate: Fate) {
        self.engine.end(command.slot, fate);
        self.channels.poll();
    }
}

/// Polls without being woken.
fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn now<F: Future>(future: F) -> F::Output {
    match poll_once(pin!(future)) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits"),
    }
}

/// Counts how often it is woken.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// Both outputs, whichever comes first.
async fn both<A: Future, B: Future>(a: A, b: B) -> (A::Output, B::Output) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    let (mut first, mut second) = (None, None);
    poll_fn(|context| {
        if first.is_none()
            && let Poll::Ready(output) = a.as_mut().poll(context)
        {
            first = Some(output);
        }
        if second.is_none()
            && let Poll::Ready(output) = b.as_mut().poll(context)
        {
            second = Some(output);
        }
        match (first.take(), second.take()) {
            (Some(first), Some(second)) => Poll::Ready((first, second)),
            (one, other) => {
                (first, second) = (one, other);
                Poll::Pending
            }
        }
    })
    .await
}

/// Executors move futures from thread to thread.
const fn movable<F: Future + Send>(future: F) -> F {
    future
}

fn word(message: &Received<Receiver>) -> u64 {
    let mut bytes = [0; 8];
    assert_eq!((message.copy_to(&mut bytes), message.len()), (8, 8));
    u64::from_le_bytes(bytes)
}

#[test]
fn a_thread_that_sleeps_is_woken_by_every_message() {
    const MESSAGES: u64 = 200;
    let Ends { channels, mut engine, mut rx, .. } = Ends::new();
    let engine = thread::spawn(move || {
        for number in 0..MESSAGES {
            engine.until_asleep();
            engine.publish(number);
        }
        engine
    });
    let all = async {
        for number in 0..MESSAGES {
            assert_eq!(word(&rx.recv().await.unwrap()), number);
        }
    };
    channels.block_on(all).unwrap();
    drop(engine.join().unwrap());
}

#[test]
fn a_waiter_is_woken_once_and_a_dropped_future_loses_nothing() {
    let Ends { channels, mut engine, mut rx, .. } = Ends::new();
    let count = Arc::new(Count::default());
    let waker = Waker::from(count.clone());
    let mut context = Context::from_waker(&waker);
    {
        let mut recv = pin!(rx.recv());
        assert!(recv.as_mut().poll(&mut context).is_pending());
        channels.poll();
        assert_eq!(count.0.load(SeqCst), 0);
        engine.publish(1);
        engine.publish(2);
        for _ in 0..3 {
            channels.poll();
        }
        assert_eq!(count.0.load(SeqCst), 1);
        // Woken, and dropped without being polled: the message was claimed.
    }
    let Poll::Ready(Ok(first)) = rx.poll_recv(&mut context) else { panic!("it was claimed") };
    assert_eq!(word(&first), 1);
    drop(first);
    assert_eq!(word(&now(rx.recv()).unwrap()), 2);
    {
        assert!(pin!(rx.recv()).poll(&mut context).is_pending());
    }
    // Nobody waits.
    engine.publish(3);
    channels.poll();
    assert_eq!(count.0.load(SeqCst), 1);
    assert_eq!(word(&now(rx.recv()).unwrap()), 3);
    assert!(rx.poll_recv(&mut context).is_pending());
    engine.publish(4);
    assert!(rx.with(|receiver, _, _| receiver.queue().has_event()).unwrap());
    assert_eq!(word(&now(rx.recv()).unwrap()), 4);
}

#[test]
fn words_wait_for_room_in_their_order_and_are_sent_once_or_not_at_all() {
    let mut it = Ends::new();
    let tx = &it.tx;
    let [first, dropped, third, taken] = [1, 2, 3, 4_u64].map(u64::to_le_bytes);
    now(tx.send_bytes(&first)).unwrap();
    let mut third = Box::pin(tx.send_bytes(&third));
    {
        let mut dropped = pin!(tx.send_bytes(&dropped));
        assert!(poll_once(dropped.as_mut()).is_pending());
        assert!(poll_once(third.as_mut()).is_pending());
    }
    let mut taken = Box::pin(tx.send_bytes(&taken));
    assert!(poll_once(taken.as_mut()).is_pending());
    let mut sent = Vec::new();
    let mut end_next = |told: bool| {
        let command = it.engine.take().unwrap();
        sent.extend(word_of(command.op));
        assert_eq!(it.engine.take(), None);
        it.engine.end(command.slot, OK);
        if told {
            it.channels.poll();
        }
    };
    end_next(true);
    let Poll::Ready(Ok(handle)) = poll_once(third.as_mut()) else { panic!("there was room") };
    end_next(true);
    // It was taken meanwhile, and its future does not know.
    drop(taken);
    assert_eq!(now(tx.sent(handle)), Ok(SendState::Accepted));
    end_next(true);
    let handle = now(tx.send_bytes(&5_u64.to_le_bytes())).unwrap();
    let mut last = pin!(tx.sent(handle));
    assert!(poll_once(last.as_mut()).is_pending());
    end_next(false);
    assert_eq!(poll_once(last.as_mut()), Poll::Ready(Ok(SendState::Accepted)));
    assert_eq!(sent, [1, 3, 4, 5]);
    it.channels.poll();
    assert_eq!(it.engine.take(), None);
    // The event that only this kind can send leaves at once, too.
    it.tx.with(|sender, link, now| sender.notify(link, now, 6)).unwrap().unwrap();
    assert_eq!(it.engine.take().and_then(|command| word_of(command.op)), Some(6));
    assert_eq!((it.tx.len_max(), it.channels.copied_bytes()), (8, 0), "words are not copied");
}

#[test]
fn a_buffer_comes_back_when_its_message_is_accepted_or_failed() {
    let mut it = Ends::new();
    let all = it.pool.count();
    let (first, second) = (it.buf(b"first"), it.buf(b"second"));
    let slot = &it.slot;
    let mut first = pin!(slot.send(first));
    let mut second = pin!(slot.send(second));
    assert!(poll_once(first.as_mut()).is_pending());
    assert!(poll_once(second.as_mut()).is_pending());
    let command = it.engine.take().unwrap();
    assert_eq!((command.op.op_size(), it.engine.take()), (5, None), "there is one slot");
    it.engine.end(command.slot, OK);
    let Poll::Ready((Ok(()), buf)) = poll_once(first.as_mut()) else { panic!("it is accepted") };
    assert_eq!(buf.to_vec(), b"first");
    drop(buf);
    // Accepted is not processed: the receiver tells of that in memory.
    assert!(poll_once(second.as_mut()).is_pending());
    assert_eq!(it.engine.take(), None);
    it.tail.store(0, 1_u64.to_le()).unwrap();
    it.channels.poll();
    let command = it.engine.take().unwrap();
    assert_eq!(command.op.op_size(), 6);
    it.engine.end(command.slot, Fate::Ends(OpStatus::RemotePermissionDenied));
    let Poll::Ready((failed, buf)) = poll_once(second.as_mut()) else { panic!("it is over") };
    let status = CallStatus::Failed(OpStatus::RemotePermissionDenied);
    assert_eq!(failed, Err(ChannelError::NotAccepted(status)));
    // The channel is broken, and says so, to each form.
    let (broken, buf) = now(slot.send(buf));
    assert!(matches!(broken, Err(ChannelError::Send(SendError::Broken { .. }))), "{broken:?}");
    let broken = now(slot.send_bytes(&[1]));
    assert!(matches!(broken, Err(ChannelError::Send(SendError::Broken { .. }))), "{broken:?}");
    drop(buf);
    assert_eq!((it.pool.free(), it.channels.copied_bytes()), (all, 0));
}

#[test]
fn a_refused_message_gives_its_buffer_back() {
    let it = Ends::new();
    let (refused, buf) = now(it.slot.send(it.buf(b"")));
    assert!(matches!(refused, Err(ChannelError::Send(SendError::Len { len: 0, .. }))));
    drop(buf);
    let refused = now(it.tx.send_bytes(b"no word"));
    assert!(matches!(refused, Err(ChannelError::Send(SendError::NotAWord { .. }))));
    assert_eq!(it.pool.free(), it.pool.count());
    // The channel's bytes beside a message must not be in another's buffer.
    let buf = it.buf(&[7; 57]);
    assert!(buf.message(0, 0).is_ok());
    let place = |before, behind| buf.message(before, behind).map(|(_, range)| range);
    assert_eq!(place(8, 0), Ok(8..57));
    let error = SendError::Place { start: 8, end: 57, len: 64, before: 8, behind: 8 };
    assert_eq!(place(8, 8), Err(error));
}

#[test]
fn a_dropped_future_keeps_its_buffer_while_it_is_sent_from_and_no_longer() {
    let mut it = Ends::new();
    let all = it.pool.count();
    let [one, two, three] = [b"one..", b"two..", b"three"].map(|it_is| it.buf(it_is));
    drop(it.slot.send(one));
    assert_eq!(it.pool.free(), all - 2, "it was never polled");
    {
        let (mut under_way, mut in_line) = (pin!(it.slot.send(two)), pin!(it.slot.send(three)));
        assert!(poll_once(under_way.as_mut()).is_pending());
        assert!(poll_once(in_line.as_mut()).is_pending());
    }
    assert_eq!(it.pool.free(), all - 1, "its bytes may still go");
    let command = it.next();
    it.end(&command, OK);
    assert_eq!(it.pool.free(), all);
    // A message that waited for room is not sent when there is some.
    it.tail.store(0, 1_u64.to_le()).unwrap();
    it.channels.poll();
    assert_eq!(it.engine.take(), None);
    // All handles may go while a buffer is sent from: somebody waits for its end.
    {
        let buf = it.buf(b"last");
        assert!(poll_once(pin!(it.slot.send(buf))).is_pending());
    }
    let Ends { channels, mut engine, rx, tx, slot, tail: _tail, pool } = it;
    drop((channels, rx, tx, slot));
    assert_eq!(pool.free(), all - 1);
    let command = engine.take().unwrap();
    engine.end(command.slot, OK);
    while pool.free() < all {
        thread::yield_now();
    }
}

#[test]
fn a_sender_and_a_receiver_wait_on_one_link_and_one_thread() {
    let Ends { channels, mut engine, mut rx, tx, slot, tail, pool } = Ends::new();
    let mut buf = pool.try_acquire().unwrap();
    buf.set_len(3);
    let engine = thread::spawn(move || {
        let next = |engine: &mut Scripted| loop {
            match engine.take() {
                Some(command) => break command,
                None => thread::yield_now(),
            }
        };
        let mut words = Vec::new();
        // All three futures wait, and end one after the other, in another order than they began.
        let mut commands = [next(&mut engine), next(&mut engine)];
        engine.until_asleep();
        engine.publish(77);
        engine.until_asleep();
        commands.reverse();
        for command in commands {
            words.extend(word_of(command.op));
            engine.end(command.slot, OK);
            engine.until_asleep();
        }
        let command = next(&mut engine);
        words.extend(word_of(command.op));
        engine.end(command.slot, OK);
        engine.until_asleep();
        tail.store(0, 1_u64.to_le()).unwrap();
        let command = next(&mut engine);
        engine.end(command.slot, OK);
        (engine, words)
    });
    let words = async {
        movable(tx.send_bytes(&1_u64.to_le_bytes())).await.unwrap();
        let handle = tx.send_bytes(&2_u64.to_le_bytes()).await.unwrap();
        movable(tx.sent(handle)).await.unwrap()
    };
    let bufs = async {
        let (sent, buf) = movable(slot.send(buf)).await;
        sent.unwrap();
        slot.send(buf).await.0
    };
    let received = async { word(&movable(rx.recv()).await.unwrap()) };
    let ended = channels.block_on(both(both(words, bufs), received)).unwrap();
    assert_eq!(ended, ((SendState::Accepted, Ok(())), 77));
    let (_engine, words) = engine.join().unwrap();
    assert_eq!(words, [1, 2]);
}

#[test]
fn a_polled_channel_is_looked_at_each_time_that_the_callers_timer_says() {
    let Ends { mut engine, mut rx, .. } = Ends::new();
    let every = Duration::from_micros(70);
    let mut naps = Vec::new();
    let asks = AtomicUsize::new(0);
    let mut recv = Box::pin(rx.recv_every(every, |interval| {
        naps.push(interval);
        // Over when it is asked for the second time.
        poll_fn(|_| match asks.fetch_add(1, SeqCst) % 2 {
            0 => Poll::Pending,
            _ => Poll::Ready(()),
        })
    }));
    let count = Arc::new(Count::default());
    let waker = Waker::from(count.clone());
    let mut context = Context::from_waker(&waker);
    for _ in 0..6 {
        assert!(recv.as_mut().poll(&mut context).is_pending());
    }
    // It wakes itself after each nap, to look at once.
    assert_eq!((asks.load(SeqCst), count.0.load(SeqCst)), (6, 3));
    engine.publish(8);
    let Poll::Ready(Ok(message)) = recv.as_mut().poll(&mut context) else { panic!("it is there") };
    assert_eq!(word(&message), 8);
    drop(recv);
    assert_eq!(naps, [every; 4]);
    // A timer that is always over keeps no executor from its other tasks.
    let mut recv = pin!(rx.recv_every(Duration::ZERO, |_| ready(())));
    assert!(poll_once(recv.as_mut()).is_pending());
    engine.publish(9);
    assert!(poll_once(recv.as_mut()).is_ready());
}

#[test]
fn futures_that_wait_are_told_when_the_engine_is_gone() {
    let mut it = Ends::new();
    it.engine.publish(5);
    let handle = now(it.tx.send_bytes(&[1; 8])).unwrap();
    let bufs = [it.buf(b"under way"), it.buf(b"in line")];
    let count = Arc::new(Count::default());
    let waker = Waker::from(count.clone());
    let mut context = Context::from_waker(&waker);
    let [under_way, in_line] = bufs.map(|buf| it.slot.send(buf));
    let (mut under_way, mut in_line) = (pin!(under_way), pin!(in_line));
    let mut sent = Box::pin(it.tx.sent(handle));
    let mut full = Box::pin(it.tx.send_bytes(&[2; 8]));
    assert!(under_way.as_mut().poll(&mut context).is_pending());
    assert!(in_line.as_mut().poll(&mut context).is_pending());
    assert!(sent.as_mut().poll(&mut context).is_pending());
    assert!(full.as_mut().poll(&mut context).is_pending());
    // The earlier message is received first.
    assert_eq!(word(&now(it.rx.recv()).unwrap()), 5);
    {
        let mut recv = pin!(it.rx.recv());
        assert!(recv.as_mut().poll(&mut context).is_pending());
        it.engine.publish(6);
        it.engine.end_engine();
        it.channels.poll();
        assert_eq!(count.0.load(SeqCst), 5, "each future is woken");
        assert!(recv.as_mut().poll(&mut context).is_ready());
    }
    assert_eq!(now(it.rx.recv()).map(|_| ()), Err(GONE));
    let nap = |_| core::future::pending();
    assert_eq!(now(it.rx.recv_every(Duration::ZERO, nap)).map(|_| ()), Err(GONE));
    let Poll::Ready((Err(GONE), _)) = poll_once(under_way.as_mut()) else { panic!("it waits") };
    let Poll::Ready((Err(GONE), _)) = poll_once(in_line.as_mut()) else { panic!("it waits") };
    assert_eq!(poll_once(sent.as_mut()), Poll::Ready(Err(GONE)));
    assert_eq!(poll_once(full.as_mut()), Poll::Ready(Err(GONE)));
    assert_eq!(now(it.tx.send_bytes(&[3; 8])), Err(GONE));
    assert_eq!(it.pool.free(), it.pool.count());
}

#[test]
fn a_poller_ends_after_the_last_end() {
    let Ends { channels, mut engine, mut rx, tx, slot, .. } = Ends::new();
    let poller = channels.poller();
    let polls = thread::spawn(move || poller.run());
    drop((tx, slot));
    let waits = thread::spawn(move || {
        let message = channels.block_on(rx.recv());
        word(&message.unwrap().unwrap())
    });
    engine.publish(4);
    assert_eq!(waits.join().unwrap(), 4);
    assert_eq!(polls.join().unwrap(), Ok(()));
}

/// An end that ends an op while it is tended.
struct Ending(Mutex<Option<(Scripted, Command)>>, Mutex<Option<Scripted>>);

impl core::fmt::Debug for Ending {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Ending")
    }
}

impl End for Ending {
    fn tend(&self, _: &mut Link, _: Instant, _: Option<WaitError>, _: &mut After) -> usize {
        if let Some((mut engine, command)) = self.0.lock().unwrap().take() {
            engine.end(command.slot, OK);
            *self.1.lock().unwrap() = Some(engine);
        }
        0
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn is_over(&self) -> bool {
        false
    }
}

#[test]
fn nobody_sleeps_while_an_end_has_not_been_told_of_what_another_thread_took() {
    let mut it = Ends::new();
    let handle = now(it.tx.send_bytes(&7_u64.to_le_bytes())).unwrap();
    let command = it.next();
    let Ends { channels, engine, rx: _rx, tx, slot: _slot, .. } = it;
    channels.poll();
    let may_sleep = |channels: &AsyncChannels| {
        channels.handle.shared().with(|state, _| state.may_sleep()).unwrap()
    };
    assert!(may_sleep(&channels));
    let ending = Arc::new(Ending(Mutex::new(Some((engine, command))), Mutex::new(None)));
    channels.handle.shared().with(|state, _| state.add(ending.clone())).unwrap();
    // The completion is taken after all ends were tended.
    channels.poll();
    assert!(!may_sleep(&channels), "its end does not know");
    channels.poll();
    assert!(may_sleep(&channels));
    assert_eq!(tx.with(|sender, _, _| sender.test(handle)), Ok(SendState::Accepted));
}

#[test]
fn a_receiver_that_is_gone_keeps_no_waker() {
    let Ends { mut engine, mut rx, .. } = Ends::new();
    let count = Arc::new(Count::default());
    let waker = Waker::from(count.clone());
    engine.publish(1);
    let kept = now(rx.recv()).unwrap();
    assert!(rx.poll_recv(&mut Context::from_waker(&waker)).is_pending());
    drop((rx, waker));
    assert_eq!((word(&kept), Arc::strong_count(&count)), (1, 1));
}
