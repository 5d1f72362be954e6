//! Channels of two hosts, waited for: by threads that sleep, by futures on an executor that knows
//! nothing of them, and by looks at a timer's pace.

use core::{
    future::{Future, poll_fn},
    pin::Pin,
    task::{Poll, Waker},
    time::Duration,
};
use std::{
    sync::{Arc, Mutex},
    thread,
};

use rma_tests::hosts::Hosts;
use rma_xdp::{
    BufferPool, HostFor, Permissions, Portal, RegionBuf,
    channel::{
        AsyncChannels, Channels, Close, Half, Peer, Rx, SendState, Terms, Tx,
        ring_buffer::{self, RingConfig, without_zeroing},
        write_slot::{SlotConfig, immediate},
    },
    config::IdlePolicy,
    engine::EngineThread,
};

use super::{futures::Tiny, hosts};

/// How many messages go each way.
const MESSAGES: usize = 100;

/// A host as the ends of channels are opened at it, and its link later.
struct Side<'a> {
    host: HostFor<'a, EngineThread>,
    /// The peer at the other end.
    peer: Peer,
}

fn sides<'a>(hosts: &'a Hosts, portals: &'a [Portal; 2]) -> [Side<'a>; 2] {
    let all = [(&hosts.client, hosts.client_addr), (hosts.server(), hosts.server_addr)];
    let peers = all.map(|(host, address)| Peer { address, pid: host.pid() });
    [0, 1].map(|it| Side { host: all[it].0.waking(&portals[it]), peer: peers[1 - it] })
}

fn portals(hosts: &Hosts) -> [Portal; 2] {
    [&hosts.client, hosts.server()].map(|host| host.portal(16).unwrap())
}

/// The links of two hosts. Whoever waits for them sleeps at once.
fn links(hosts: &Hosts, portals: [Portal; 2]) -> [Channels; 2] {
    let config = hosts.client.executor_config();
    portals.map(|portal| {
        let mut channels = Channels::new(portal, config).unwrap();
        let at_once = |it: &mut IdlePolicy| {
            (it.spin, it.yield_for, it.sleep) = (Duration::ZERO, Duration::ZERO, true);
        };
        channels.set_idle(IdlePolicy::default().with(at_once));
        channels
    })
}

/// Both ends, once they have told each other their terms.
fn connect<S: Close, R: Close>(sender: Half<S>, receiver: Half<R>) -> (S, R) {
    let carried = |terms: &Terms| Terms::from_bytes(&terms.to_bytes()).unwrap();
    let (ours, theirs) = (carried(sender.terms()), carried(receiver.terms()));
    (sender.connect(&theirs).unwrap(), receiver.connect(&ours).unwrap())
}

/// A ring whose messages events tell of.
fn ring(
    from: &mut Side<'_>,
    to: &mut Side<'_>,
) -> (ring_buffer::immediate::Sender, ring_buffer::immediate::Receiver) {
    let [there, here] = [from.peer, to.peer].map(RingConfig::with_peer);
    let sender = ring_buffer::immediate::Sender::open(&from.host, there);
    let receiver = ring_buffer::immediate::Receiver::open(&to.host, here);
    connect(sender.unwrap(), receiver.unwrap())
}

/// Four slots whose messages events tell of.
fn slots(from: &mut Side<'_>, to: &mut Side<'_>) -> (immediate::Sender, immediate::Receiver) {
    let four = |peer| SlotConfig::with_peer(peer).with(|it| (it.slots, it.len_max) = (4, 5000));
    let sender = immediate::Sender::open(&from.host, four(from.peer));
    let receiver = immediate::Receiver::open(&to.host, four(to.peer));
    connect(sender.unwrap(), receiver.unwrap())
}

/// A ring that nothing but its memory tells of.
fn polled_ring(
    from: &mut Side<'_>,
    to: &mut Side<'_>,
) -> (without_zeroing::Sender, without_zeroing::Receiver) {
    let [there, here] = [from.peer, to.peer].map(RingConfig::with_peer);
    let sender = without_zeroing::Sender::open(&from.host, there);
    let receiver = without_zeroing::Receiver::open(&to.host, here);
    connect(sender.unwrap(), receiver.unwrap())
}

/// A message, another one each time.
fn message(number: usize, len_max: usize) -> Vec<u8> {
    let len = 8 + number * 977 % (len_max - 8);
    let bytes = number.to_le_bytes().into_iter().chain((8..len).map(|at| (at ^ number) as u8));
    bytes.collect()
}

#[test]
fn threads_that_sleep_wake_each_other_through_channels() {
    let hosts = hosts();
    let portals = portals(&hosts);
    let [mut here, mut there] = sides(&hosts, &portals);
    let (mut to, mut requests) = ring(&mut here, &mut there);
    let (mut answers, mut from) = slots(&mut there, &mut here);
    let [mut mine, mut theirs] = links(&hosts, portals);
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut last = None;
            for _ in 0..MESSAGES {
                let request = theirs.recv(&mut requests, &mut [&mut answers]).unwrap().to_vec();
                last = Some(theirs.send(&mut answers, &request).unwrap());
            }
            // Whoever is gone at once may leave the last answer behind.
            let sent = theirs.sent(&mut answers, last.unwrap()).unwrap();
            assert!(!matches!(sent, SendState::Sending | SendState::Failed(_)), "{sent:?}");
        });
        for number in 0..MESSAGES {
            let request = message(number, 4096);
            mine.send(&mut to, &request).unwrap();
            let answer = mine.recv(&mut from, &mut [&mut to]).unwrap();
            assert!(answer.to_vec() == request, "{number}");
        }
        let none = mine.recv_timeout(&mut from, &mut [&mut to], Duration::from_millis(1));
        assert!(none.unwrap().is_none());
    });
}

type Task<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Sends messages out of buffers, without waiting for one before the next.
fn sends<'a>(tx: &'a Tx<immediate::Sender>, pool: &'a BufferPool) -> Vec<Task<'a>> {
    let send = |number| async move {
        let mut buf = pool.acquire().await;
        fill(&mut buf, 0, &message(number, 5000));
        let (sent, _) = tx.send(buf).await;
        sent.unwrap();
    };
    (0..MESSAGES).map(|number| Box::pin(send(number)) as Task<'a>).collect()
}

fn fill(buf: &mut RegionBuf, before: usize, bytes: &[u8]) {
    buf.set_len(before + bytes.len());
    buf.write(before, bytes).unwrap();
}

/// Receives all messages, each once, keeps some, and has futures beside that it drops.
async fn receives(mut rx: Rx<immediate::Receiver>) {
    let mut kept = Vec::new();
    let mut is_there = [false; MESSAGES];
    for _ in 0..MESSAGES {
        // One that is dropped after its first look, whatever it finds, but for a message.
        let looked = poll_fn(|context| Poll::Ready(rx.poll_recv(context))).await;
        let received = match looked {
            Poll::Ready(received) => received.unwrap(),
            Poll::Pending => rx.recv().await.unwrap(),
        };
        let bytes = received.to_vec();
        let number = usize::from_le_bytes(bytes[..8].try_into().unwrap());
        assert!(bytes == message(number, 5000), "{number}");
        assert!(!core::mem::replace(&mut is_there[number], true), "{number} came twice");
        kept.push(received);
        if kept.len() == 3 {
            // A later one before an earlier one.
            drop((kept.remove(1), kept.remove(0)));
        }
    }
}

/// Sends messages whose bytes are copied, one after the other, and hears of the last.
async fn sends_bytes(tx: &Tx<ring_buffer::immediate::Sender>) {
    let mut last = None;
    for number in 0..MESSAGES {
        last = Some(tx.send_bytes(&message(number, 4096)).await.unwrap());
    }
    let sent = tx.sent(last.unwrap()).await.unwrap();
    assert!(!matches!(sent, SendState::Sending | SendState::Failed(_)), "{sent:?}");
}

async fn receives_bytes(mut rx: Rx<ring_buffer::immediate::Receiver>) {
    for number in 0..MESSAGES {
        assert!(rx.recv().await.unwrap().to_vec() == message(number, 4096), "{number}");
    }
}

#[test]
fn futures_of_several_channels_of_one_link_run_on_any_executor() {
    let hosts = hosts();
    let portals = portals(&hosts);
    let [mut here, mut there] = sides(&hosts, &portals);
    // Two channels one way, and one back.
    let (slot_sender, slot_receiver) = slots(&mut here, &mut there);
    let (ring_sender, ring_receiver) = ring(&mut here, &mut there);
    let (back_sender, back_receiver) = ring(&mut there, &mut here);
    // Each link has a thread that sleeps: every future is woken by one that was woken itself.
    let [mine, theirs] =
        links(&hosts, portals).map(|channels| AsyncChannels::start(channels).unwrap());
    let (slot, ring) = (mine.sender(slot_sender), mine.sender(ring_sender));
    let back = theirs.sender(back_sender);
    let region = hosts.client.register(8 * 5000, Permissions::NONE).unwrap();
    let pool = BufferPool::new(region, 5000).unwrap();
    let mut tasks = sends(&slot, &pool);
    tasks.push(Box::pin(receives(theirs.receiver(slot_receiver))));
    tasks.push(Box::pin(sends_bytes(&ring)));
    tasks.push(Box::pin(receives_bytes(theirs.receiver(ring_receiver))));
    tasks.push(Box::pin(sends_bytes(&back)));
    tasks.push(Box::pin(receives_bytes(mine.receiver(back_receiver))));
    Tiny::run(tasks);
    assert_eq!(pool.free(), pool.count());
    let copied: usize = (0..MESSAGES).map(|number| message(number, 4096).len()).sum();
    assert_eq!(mine.copied_bytes(), copied as u64, "nothing that was in a buffer");
}

/// A timer: a thread that is parked for that long.
fn nap(interval: Duration) -> impl Future<Output = ()> {
    let state = Arc::new(Mutex::new((false, None::<Waker>)));
    let timer = state.clone();
    thread::spawn(move || {
        thread::park_timeout(interval);
        let waker = {
            let mut state = timer.lock().unwrap();
            state.0 = true;
            state.1.take()
        };
        waker.map(Waker::wake)
    });
    poll_fn(move |context| {
        let mut state = state.lock().unwrap();
        state.1 = Some(context.waker().clone());
        if state.0 { Poll::Ready(()) } else { Poll::Pending }
    })
}

#[test]
fn messages_that_nothing_tells_of_are_found_by_looking() {
    let hosts = hosts();
    let portals = portals(&hosts);
    let [mut here, mut there] = sides(&hosts, &portals);
    let (sender, receiver) = polled_ring(&mut here, &mut there);
    let (mut blocking_sender, mut blocking_receiver) = polled_ring(&mut there, &mut here);
    let [mut mine, mut theirs] = links(&hosts, portals);
    let every = Duration::from_micros(200);
    // Threads first.
    thread::scope(|scope| {
        let theirs = &mut theirs;
        scope.spawn(move || {
            for number in 0..MESSAGES {
                theirs.send(&mut blocking_sender, &message(number, 4096)).unwrap();
            }
            let bye = theirs.send(&mut blocking_sender, b"bye").unwrap();
            theirs.sent(&mut blocking_sender, bye).unwrap();
        });
        for number in 0..MESSAGES {
            let found = mine.recv_every(&mut blocking_receiver, &mut [], every).unwrap();
            assert!(found.to_vec() == message(number, 4096), "{number}");
        }
        let bye = mine.recv_every(&mut blocking_receiver, &mut [], every).unwrap();
        assert_eq!(bye.to_vec(), b"bye");
    });
    // Then futures on the same links, of which each is driven by the thread that blocks on it.
    let [mine, theirs] = [mine, theirs].map(AsyncChannels::new);
    let (tx, mut rx) = (mine.sender(sender), theirs.receiver(receiver));
    let (before, behind) = tx.beside();
    assert!(before > 0 && behind > 0, "the ring writes beside messages");
    let pool = hosts.client.buffer_pool(1, 8192).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let all = async {
                for number in 0..MESSAGES {
                    let mut buf = pool.acquire().await;
                    fill(&mut buf, before as usize, &message(number, 4000));
                    let (sent, _) = tx.send(buf).await;
                    sent.unwrap();
                }
            };
            mine.block_on(all).unwrap();
        });
        let all = async {
            for number in 0..MESSAGES {
                let received = rx.recv_every(every, nap).await.unwrap();
                assert!(received.to_vec() == message(number, 4000), "{number}");
            }
        };
        theirs.block_on(all).unwrap();
    });
    assert_eq!((mine.copied_bytes(), pool.free()), (0, 1));
    // The regions that the ends have registered go back to their hosts.
    tx.close(&hosts.client).unwrap();
    rx.close(hosts.server()).unwrap();
}
