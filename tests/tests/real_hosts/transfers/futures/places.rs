//! More futures than an executor has places for calls: they wait, in order, and none is forgotten.

use super::*;

/// Some thousands of futures, as a service has them.
const MANY: usize = 3000;

/// The length that each of them reads.
const SMALL: usize = 64;

/// The result of a future of one buffer.
type Done = (Result<(), TransferError>, RegionBuf);

#[test]
fn more_futures_than_there_are_calls_wait_and_all_are_served() {
    let hosts = hosts();
    let (_region, read, _) = remote(hosts.server(), &hosts);
    let client = Client::start(hosts.client.transfers(64).unwrap()).unwrap();
    let pool = hosts.client.buffer_pool(MANY as u32, SMALL as u32).unwrap();
    let one = |_| {
        let (client, buf) = (client.clone(), pool.try_acquire().unwrap());
        let future = async move { client.read(&read, 0, buf).await };
        Box::pin(future) as Pin<Box<dyn Future<Output = Done>>>
    };
    let results = Tiny::run((0..MANY).map(one).collect());
    let failed: Vec<_> = results.iter().filter_map(|(result, _)| result.as_ref().err()).collect();
    assert!(failed.is_empty(), "{} of {MANY} failed: {}", failed.len(), failed[0]);
    assert!(results.iter().all(|(_, buf)| buf.to_vec() == [DATA; SMALL]));
    drop(results);
    assert_eq!((pool.free(), client.calls()), (MANY, 0));
}

/// A client of `host` with so few calls.
fn client_of(host: &Host, calls: u16) -> Client {
    let config = host.executor_config().with(|it| it.calls = calls);
    Client::new(Transfers::new(host.portal(8).unwrap(), config).unwrap())
}

/// A client of few calls, and a server that answers when it is turned.
struct Slow {
    // Dropped in this order.
    client: Client,
    pool: BufferPool,
    grant: Grant,
    host: Host,
    server: InlineHost,
}

impl Slow {
    fn new(calls: u16, bufs: u32) -> Self {
        let [here, there] = patient_pair();
        let (server, grant) = slow_server(there, here.addresses[0]);
        let host = Host::open(here).unwrap();
        let pool = host.buffer_pool(bufs, BUF as u32).unwrap();
        Self { client: client_of(&host, calls), pool, grant, host, server }
    }

    /// A read of several ops, in the class for such, that has been polled once.
    fn large(&self) -> rma_xdp::transfer::Transfer {
        self.begun(self.client.read(&self.grant, 0, self.pool.try_acquire().unwrap()))
    }

    /// A read of one op, that has been polled once.
    fn small(&self) -> rma_xdp::transfer::Transfer {
        let mut buf = self.pool.try_acquire().unwrap();
        buf.set_len(SMALL);
        self.begun(self.client.read(&self.grant, 0, buf))
    }

    fn begun(&self, mut transfer: rma_xdp::transfer::Transfer) -> rma_xdp::transfer::Transfer {
        assert!(poll_once(&mut transfer).is_pending());
        transfer
    }

    /// How many calls there are, and how many futures wait.
    fn state(&self) -> (usize, usize) {
        (self.client.calls(), self.client.waiting())
    }

    /// Turns everything until the future is done.
    fn done(&mut self, transfer: &mut rma_xdp::transfer::Transfer) -> Done {
        let mut done = None;
        until("it is done", || {
            self.server.turn();
            if let Poll::Ready(it) = poll_once(transfer) {
                done = Some(it);
            }
            done.is_some()
        });
        done.unwrap()
    }
}

#[test]
fn futures_of_a_class_begin_in_the_order_in_which_they_came() {
    let mut slow = Slow::new(1, 20);
    let mut all: Vec<_> = (0..20).map(|_| Some(slow.small())).collect();
    assert_eq!(slow.state(), (1, 19));
    let mut order = Vec::new();
    until("all are done", || {
        slow.server.turn();
        // Whoever is polled, the next in the line goes on.
        for place in (0..20).rev() {
            let Some(it) = &mut all[place] else { continue };
            if let Poll::Ready((result, _)) = poll_once(it) {
                result.unwrap();
                order.push(place);
                all[place] = None;
                break;
            }
        }
        order.len() == 20
    });
    assert!(order.is_sorted(), "{order:?}");
    assert_eq!(slow.state(), (0, 0));
}

#[test]
fn a_waiter_is_served_though_nobody_polls_it() {
    let hosts = hosts();
    let (_region, read, _) = remote(hosts.server(), &hosts);
    let client = client_of(&hosts.client, 1);
    let pool = hosts.client.buffer_pool(10, BUF as u32).unwrap();
    let mut transfers: Vec<_> =
        (0..10).map(|_| client.read(&read, 0, pool.try_acquire().unwrap())).collect();
    transfers.iter_mut().for_each(|it| assert!(poll_once(it).is_pending()));
    assert_eq!((client.calls(), client.waiting()), (1, 9));
    until("all calls are over", || {
        client.poll();
        client.calls() == 0 && client.waiting() == 0
    });
    for transfer in &mut transfers {
        let Poll::Ready((result, buf)) = poll_once(transfer) else { panic!("it is over") };
        result.unwrap();
        assert!(buf.to_vec() == [DATA; BUF]);
    }
}

#[test]
fn small_transfers_find_a_place_beside_large_ones_that_wait() {
    let mut slow = Slow::new(8, 24);
    let large: Vec<_> = (0..12).map(|_| slow.large()).collect();
    assert_eq!(slow.state(), (7, 5), "one place is left to small ones");
    let mut small = slow.small();
    assert_eq!(slow.state(), (8, 5));
    // One more waits for the first of its kind, and not for all the large ones.
    let mut second = slow.small();
    assert_eq!(slow.state(), (8, 6));
    slow.done(&mut small).0.unwrap();
    slow.done(&mut second).0.unwrap();
    for mut it in large {
        let (result, buf) = slow.done(&mut it);
        result.unwrap();
        assert!(buf.to_vec() == [DATA; BUF]);
    }
    assert_eq!((slow.state(), slow.pool.free()), ((0, 0), 24));
}

#[test]
fn a_future_dropped_in_the_line_gives_its_buffer_back_at_once_and_keeps_nobody_waiting() {
    let mut slow = Slow::new(2, 6);
    let [first, second, third, mut fourth] = [(); 4].map(|()| slow.small());
    assert_eq!((slow.state(), slow.pool.free()), ((2, 2), 2));
    drop(third);
    assert_eq!((slow.state(), slow.pool.free()), ((2, 1), 3), "nothing of it was under way");
    // Those before it were: their buffers come when their calls are over, and so does the place.
    drop((first, second));
    assert_eq!((slow.state(), slow.pool.free()), ((2, 1), 3));
    let (result, buf) = slow.done(&mut fourth);
    result.unwrap();
    assert!(buf.to_vec() == [DATA; SMALL]);
    drop(buf);
    until("the calls of dropped futures are over", || {
        slow.server.turn();
        slow.client.poll();
        slow.client.calls() == 0
    });
    assert_eq!((slow.state(), slow.pool.free()), ((0, 0), 6));
}

#[test]
fn buffers_of_reads_dropped_in_the_line_or_out_of_it_are_handed_out_when_nothing_can_touch_them() {
    let [here, there] = patient_pair();
    let (mut server, grant) = slow_server(there, here.addresses[0]);
    let mut host = InlineHost::open(here).unwrap();
    let pool = host.buffer_pool(6, BUF as u32).unwrap();
    for seed in 8..11 {
        let portal = host.portal(8).unwrap();
        let config = host.executor_config().with(|it| it.calls = 2);
        let client = Client::new(steady(portal, config));
        let (mut random, mut waited) = (Random(seed + 1), 0);
        let seen = drop_reads_at_random(&client, &pool, &grant, seed, || {
            waited += usize::from(client.waiting() > 0);
            match random.below(3) {
                0 => server.turn(),
                1 => host.turn(),
                _ => client.poll(),
            };
        });
        let Seen { finished, dropped, .. } = seen;
        assert!(finished > 20 && dropped > 100 && waited > 1000, "{seen:?}, {waited}");
        assert_eq!(client.waiting(), 0);
    }
    assert_eq!(host.usage().unwrap().slots.used, 0);
}

#[test]
fn threads_that_wait_for_one_place_wake_each_other() {
    let hosts = hosts();
    let (_region, read, write) = remote(hosts.server(), &hosts);
    let client = client_of(&hosts.client, 1);
    let pool = hosts.client.buffer_pool(6, BUF as u32).unwrap();
    std::thread::scope(|scope| {
        for place in 0..6 {
            let (client, pool) = (client.clone(), pool.clone());
            scope.spawn(move || {
                let future = to_and_fro(client.clone(), pool, (read, write), place);
                client.block_on(future).unwrap();
            });
        }
    });
    assert_eq!((pool.free(), client.calls(), client.waiting()), (6, 0, 0));
}

#[test]
fn a_call_that_does_not_wait_is_told_that_all_places_are_taken() {
    let mut slow = Slow::new(2, 6);
    let full = |transfer: rma_xdp::transfer::Transfer| {
        let mut transfer = transfer;
        let Poll::Ready((result, buf)) = poll_once(&mut transfer) else { panic!("it waits") };
        let Err(error @ TransferError::Full { calls, waiting }) = result else {
            panic!("{result:?}")
        };
        assert!(error.to_string().contains("`calls`"), "{error}");
        (calls, waiting, buf)
    };
    let mut calls: Vec<_> = [(); 2].map(|()| slow.small()).into();
    let mut buf = slow.pool.try_acquire().unwrap();
    buf.set_len(SMALL);
    let (calls_then, waiting, buf) = full(slow.client.read(&slow.grant, 0, buf).or_full());
    assert_eq!((calls_then, waiting, buf.len()), (2, 0, SMALL));
    // One may wait, and no more.
    slow.client.set_waiting_max(1);
    calls.push(slow.small());
    let (calls_then, waiting, buf) = full(slow.client.read(&slow.grant, 0, buf));
    assert_eq!((calls_then, waiting), (2, 1));
    // An impossible read is refused as such.
    let mut outside = slow.client.read(&slow.grant, LEN as u64, buf).or_full();
    let Poll::Ready((result, buf)) = poll_once(&mut outside) else { panic!("it waits") };
    assert!(matches!(result, Err(TransferError::Refused(_))), "{result:?}");
    calls.iter_mut().for_each(|it| slow.done(it).0.unwrap());
    let mut free = slow.client.read(&slow.grant, 0, buf).or_full();
    slow.done(&mut free).0.unwrap();
}

#[test]
fn the_time_of_a_transfer_passes_in_the_line_and_a_replica_has_all_of_it() {
    let mut slow = Slow::new(1, 3);
    let mut first = slow.large();
    let mut buf = slow.pool.try_acquire().unwrap();
    buf.write(0, &[1; BUF]).unwrap();
    let waits = slow.client.read(&slow.grant, 64, buf).timeout(Duration::from_millis(5));
    // Nobody turns the server: only time can end it, and this thread is woken for it.
    let (result, buf) = slow.client.block_on(waits).unwrap();
    let Err(TransferError::Failed(outcome)) = result else { panic!("{result:?}") };
    assert_eq!((outcome.status, outcome.bytes_done), (CallStatus::DeadlineExceeded, 0));
    assert_eq!(outcome.missing.len(), 1);
    let missing = outcome.missing[0];
    assert_eq!((missing.piece, missing.offset, missing.len), (0, 0, BUF as u64));
    assert_eq!(missing.tried, None);
    assert!(buf.to_vec() == [1; BUF], "nothing was issued");
    assert_eq!(slow.state(), (1, 0));
    let mut again = slow.client.read(&slow.grant, 64, buf).remaining(&outcome);
    assert!(poll_once(&mut again).is_pending());
    slow.done(&mut first).0.unwrap();
    let (result, buf) = slow.done(&mut again);
    result.unwrap();
    assert!(buf.to_vec() == [DATA; BUF]);
}

#[test]
fn nobody_in_the_line_passes_a_fence() {
    let hosts = hosts();
    let (_region, read, write) = remote(hosts.server(), &hosts);
    let client = client_of(&hosts.client, 2);
    let pool = hosts.client.buffer_pool(5, BUF as u32).unwrap();
    let filled = |byte: u8| {
        let mut buf = pool.try_acquire().unwrap();
        buf.write(0, &[byte; BUF]).unwrap();
        buf
    };
    for turn in 0..40_u8 {
        // One of these goes, and the others wait: large ones leave a place for small ones.
        let mut writes: Vec<_> = (0..4_u64)
            .map(|place| client.write(&write, place * BUF as u64, filled(turn + 1)))
            .collect();
        writes.iter_mut().for_each(|it| assert!(poll_once(it).is_pending()));
        let mut sink = filled(0);
        sink.set_len(SMALL);
        // A small one that could go at once, but for the fence.
        let small = client.read(&read, 3 * BUF as u64, sink);
        let mut small = if turn % 2 == 0 {
            small.fenced()
        } else {
            client.fence();
            small
        };
        assert!(poll_once(&mut small).is_pending());
        let (result, buf) = client.block_on(small).unwrap();
        result.unwrap();
        assert!(buf.to_vec() == [turn + 1; SMALL], "turn {turn}: all before it are over");
        for it in &mut writes {
            let Poll::Ready((result, _)) = poll_once(it) else { panic!("it is over") };
            result.unwrap();
        }
    }
    assert_eq!((pool.free(), client.calls(), client.waiting()), (5, 0, 0));
}

#[test]
fn a_fence_in_the_line_is_passed_when_what_is_before_it_is_given_up() {
    let mut slow = Slow::new(2, 6);
    let (first, second) = (slow.large(), slow.large());
    assert_eq!(slow.state(), (1, 1));
    let mut buf = slow.pool.try_acquire().unwrap();
    buf.set_len(SMALL);
    let mut fenced = slow.begun(slow.client.read(&slow.grant, 0, buf).fenced());
    assert_eq!(slow.state(), (1, 2));
    drop(second);
    // It has a place now, and waits there for the first one.
    assert_eq!(slow.state(), (2, 0));
    drop(first);
    slow.done(&mut fenced).0.unwrap();
}

#[test]
fn pieces_of_several_buffers_wait_together() {
    let mut slow = Slow::new(1, 5);
    let mut first = slow.large();
    let bufs = vec![slow.pool.try_acquire().unwrap(), slow.pool.try_acquire().unwrap()];
    let piece = |buf, len| rma_xdp::memory::BufPiece {
        grant: slow.grant,
        remote_offset: 0,
        buf,
        buf_offset: 0,
        len,
    };
    let mut pieces = slow.client.read_pieces(vec![piece(1, BUF), piece(0, 10)], bufs);
    assert!(poll_once(&mut pieces).is_pending());
    let bufs = vec![slow.pool.try_acquire().unwrap()];
    let mut dropped = slow.client.read_pieces(vec![piece(0, BUF)], bufs);
    assert!(poll_once(&mut dropped).is_pending());
    assert_eq!((slow.state(), slow.pool.free()), ((1, 2), 1));
    drop(dropped);
    assert_eq!((slow.state(), slow.pool.free()), ((1, 1), 2));
    slow.done(&mut first).0.unwrap();
    let mut done = None;
    until("the pieces are there", || {
        slow.server.turn();
        if let Poll::Ready(it) = poll_once(&mut pieces) {
            done = Some(it);
        }
        done.is_some()
    });
    let (result, bufs) = done.unwrap();
    result.unwrap();
    assert!(bufs[1].to_vec() == [DATA; BUF] && bufs[0].to_vec()[..10] == [DATA; 10]);
}

#[test]
fn futures_in_the_line_end_when_the_engine_does() {
    let Slow { client, pool, grant, host, server } = Slow::new(1, 4);
    let transfer = || client.read(&grant, 0, pool.try_acquire().unwrap());
    let mut waiting: Vec<_> = (0..3).map(|_| transfer()).collect();
    waiting.iter_mut().for_each(|it| assert!(poll_once(it).is_pending()));
    drop(waiting.pop());
    assert_eq!((client.calls(), client.waiting(), pool.free()), (1, 1, 2));
    drop((host, server));
    for it in waiting {
        let (result, _buf) = client.block_on(it).unwrap();
        assert_eq!(result, Err(TransferError::Unfinished(WaitError::EngineGone)));
    }
    assert_eq!((client.calls(), client.waiting(), pool.free()), (0, 0, 4));
}

#[test]
fn futures_in_the_line_outlive_the_client_and_its_places_are_free_after_them() {
    let mut hosts = hosts_with(IMPATIENT);
    let (_region, read, _) = remote(hosts.server(), &hosts);
    hosts.server = None;
    let pool = hosts.client.buffer_pool(6, BUF as u32).unwrap();
    for starts in [false, true] {
        let config = hosts.client.executor_config().with(|it| it.calls = 2);
        let executor = Transfers::new(hosts.client.portal(8).unwrap(), config).unwrap();
        let client = if starts { Client::start(executor).unwrap() } else { Client::new(executor) };
        let mut transfers: Vec<_> = (0..6)
            .map(|_| client.read(&read, 0, pool.try_acquire().unwrap()).retry(RetryPolicy::NONE))
            .collect();
        transfers.iter_mut().for_each(|it| assert!(poll_once(it).is_pending()));
        drop(client);
        // One of those in the line comes to its turn, and to its end, with the client gone.
        until("the third is over", || poll_once(&mut transfers[2]).is_ready());
        drop(transfers);
        until("the pool is full again", || pool.free() == 6);
        let taken = || hosts.client.usage().unwrap().slots.used;
        until("the slots are free again", || taken() == 0);
    }
}

#[test]
fn a_host_tells_how_many_futures_wait() {
    let slow = Slow::new(2, 6);
    let waiting = || slow.host.metrics().executors.transfers_waiting;
    assert_eq!(waiting(), 0);
    let transfers: Vec<_> = (0..5).map(|_| slow.small()).collect();
    assert_eq!(waiting(), 3);
    drop(transfers);
    assert_eq!(waiting(), 0);
}
