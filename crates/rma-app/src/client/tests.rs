//! Futures of recorded ops and of events against an engine in the test's hands: what is issued, and
//! what becomes of buffers, ops and messages when futures are dropped.

use core::{
    pin::pin,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    task::{Context, Poll, Waker},
    time::Duration,
};
use std::{sync::Arc, task::Wake, thread};

use rma_core::{
    command::{Command, CommandOp, RecordedOp},
    executor::{CallError, CallStatus, ExecutorConfig, RetryPolicy},
    op::{OpStatus, OpType},
    outcome::Verdict,
};

use super::*;
use crate::{
    BufferPool, Settlement, TransferError,
    scripted::{Fate, NAME, Scripted, grant, local, portal_and_queue},
};

/// Polls without being woken.
fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

fn ready<F: Future + Unpin>(mut future: F) -> F::Output {
    match poll_once(&mut future) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits"),
    }
}

/// Polls until it is done, for which time must pass and nothing else.
fn until_ready<F: Future + Unpin>(mut future: F) -> F::Output {
    loop {
        if let Poll::Ready(output) = poll_once(&mut future) {
            return output;
        }
        thread::yield_now();
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

/// A client, its engine, and buffers.
struct Bench {
    client: Client,
    engine: Scripted,
    pool: BufferPool,
    queue: Option<ReceiveQueue>,
}

impl Bench {
    fn new() -> Self {
        Self::with(ExecutorConfig::default())
    }

    fn with(config: ExecutorConfig) -> Self {
        let (portal, queue, engine) = portal_and_queue();
        let client = Client::new(Transfers::new(portal, config).unwrap());
        let pool = BufferPool::new(local(4 * 16_384), 16_384).unwrap();
        Self { client, engine, pool, queue: Some(queue) }
    }

    fn buf(&self, len: usize) -> RegionBuf {
        let mut buf = self.pool.try_acquire().unwrap();
        buf.set_len(len);
        buf
    }

    /// The next command, when the time for it has come.
    fn next(&mut self) -> Command {
        loop {
            self.client.poll();
            if let Some(command) = self.engine.take() {
                return command;
            }
            assert!(self.client.calls() > 0, "there is a call");
            thread::yield_now();
        }
    }

    /// Ends the next command so, and says what it was.
    fn end_next(&mut self, fate: Fate) -> CommandOp {
        let command = self.next();
        self.engine.end(command.slot, fate);
        self.client.poll();
        command.op
    }

    /// Ends all that a future issues so, and returns what it comes to, and the last command.
    fn run<F: Future + Unpin>(&mut self, mut future: F, fate: Fate) -> (F::Output, CommandOp) {
        assert!(poll_once(&mut future).is_pending());
        loop {
            let op = self.end_next(fate);
            if let Poll::Ready(output) = poll_once(&mut future) {
                return (output, op);
            }
        }
    }
}

fn recorded(op: CommandOp) -> RecordedOp {
    match op {
        CommandOp::Recorded { op, .. } => op,
        other => panic!("not recorded: {other:?}"),
    }
}

const OK: Fate = Fate::Ends(OpStatus::Ok);

#[test]
fn each_future_issues_the_op_that_it_is_called_by_and_comes_to_its_result() {
    let mut bench = Bench::new();
    let client = bench.client.clone();
    let message = client.send(&grant(OpType::Send), bench.buf(5), 7);
    let ((result, buf), op) = bench.run(message, OK);
    assert_eq!((result, buf.len()), (Ok(()), 5));
    let RecordedOp::Send { message, immediate: 7 } = recorded(op) else { panic!("{op:?}") };
    assert_eq!(message.op_size, 5);
    drop(buf);
    let (result, op) = bench.run(client.notify(&grant(OpType::Notify), 8), OK);
    assert_eq!((result, recorded(op)), (Ok(()), RecordedOp::Notify { immediate: 8 }));
    let write = client.write_with_imm(&grant(OpType::WriteWithImm), 100, bench.buf(4096), 9);
    let ((result, _), op) = bench.run(write, OK);
    assert_eq!(result, Ok(()));
    let RecordedOp::WriteWithImm { transfer, immediate: 9, ordered: false } = recorded(op) else {
        panic!("{op:?}")
    };
    assert_eq!((transfer.remote_offset, transfer.op_size), (100, 4096));
    let swap = client.compare_swap(&grant(OpType::CompareSwap), 16, 1, 2);
    let (result, op) = bench.run(swap, Fate::Found(u64::MAX));
    assert_eq!(result, Ok(u64::MAX));
    let swap = RecordedOp::CompareSwap { remote_offset: 16, expected: 1, new: 2 };
    assert_eq!(recorded(op), swap);
    let (result, op) = bench.run(client.fetch_add(&grant(OpType::FetchAdd), 24, 3), Fate::Found(0));
    assert_eq!(result, Ok(0));
    assert_eq!(recorded(op), RecordedOp::FetchAdd { remote_offset: 24, addend: 3 });
    let says = Fate::Says(Verdict::NotApplied, None);
    let (result, op) = bench.run(client.settle(&grant(OpType::Send), NAME), says);
    let told = Settlement { verdict: Verdict::NotApplied, result: None };
    assert_eq!(result, Ok(told));
    assert_eq!(op, CommandOp::Settle { op_type: OpType::Send, name: NAME });
    assert_eq!((client.calls(), bench.pool.free()), (0, bench.pool.count()));
}

#[test]
fn the_last_op_of_a_write_that_publishes_is_recorded_and_goes_alone() {
    let mut bench = Bench::new();
    let client = bench.client.clone();
    let (to_write, to_tell) = (grant(OpType::Write), grant(OpType::WriteWithImm));
    for (len, ops) in [(8, 1), (4096, 1), (16_384, 4)] {
        for (is_ordered, imm) in [(true, None), (false, Some(5)), (true, Some(6))] {
            let mut write = client.write(&to_write, 8, bench.buf(len));
            if let Some(immediate) = imm {
                write = write.with_imm(&to_tell, immediate);
            }
            if is_ordered {
                write = write.ordered();
            }
            assert!(poll_once(&mut write).is_pending());
            let (mut done, mut last) = (0, None);
            while done < len {
                assert_eq!(last, None, "the recorded one is the last");
                let command = bench.next();
                done += command.op.op_size() as usize;
                if let CommandOp::Recorded { op, .. } = command.op {
                    assert_eq!(done, len, "all others are over");
                    last = Some(op);
                }
                bench.engine.end(command.slot, OK);
            }
            let expected = |it: &RecordedOp| match (it, imm) {
                (RecordedOp::OrderedWrite(_), None) => true,
                (RecordedOp::WriteWithImm { immediate, ordered, .. }, Some(imm)) => {
                    (*immediate, *ordered) == (imm, is_ordered)
                }
                _ => false,
            };
            assert!(last.is_some_and(|it| expected(&it)), "{last:?} of {ops} ops");
            let (result, _) = ready(write);
            assert_eq!(result, Ok(()));
        }
    }
    // A read publishes nothing, and words end where words end.
    let (result, buf) = ready(client.read(&grant(OpType::Read), 0, bench.buf(8)).ordered());
    let refused = |result| match result {
        Err(TransferError::Refused(error)) => error,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(result), CallError::NothingToPublish { granted: OpType::Read });
    let (result, buf) = ready(client.write_ordered(&to_write, 4, buf));
    assert_eq!(refused(result), CallError::Misaligned { piece: 0, offset: 4, len: 8 });
    let elsewhere = Grant { region: rma_core::region::RegionId::from_bits(77), ..to_tell };
    let (result, _) = ready(client.write(&to_write, 0, buf).with_imm(&elsewhere, 1));
    assert_eq!(refused(result), CallError::PublishElsewhere { piece: 0 });
}

#[test]
fn an_op_that_cannot_be_right_is_refused_at_once_with_its_buffer() {
    let bench = Bench::new();
    let client = &bench.client;
    let refused = |error: TransferError| match error {
        TransferError::Refused(error) => error,
        other => panic!("{other}"),
    };
    let (result, buf) = ready(client.send(&grant(OpType::Notify), bench.buf(8), 0));
    assert!(matches!(refused(result.unwrap_err()), CallError::Submit { piece: 0, .. }));
    let mut buf = buf;
    buf.set_len(4097);
    let (result, buf) = ready(client.send(&grant(OpType::Send), buf, 0));
    assert!(matches!(refused(result.unwrap_err()), CallError::Submit { piece: 0, .. }));
    drop(buf);
    let add = ready(client.fetch_add(&grant(OpType::FetchAdd), 1 << 16, 1));
    let outside = refused(add.unwrap_err());
    assert!(matches!(outside, CallError::RemoteOutOfBounds { .. }), "{outside}");
    let odd = ready(client.compare_swap(&grant(OpType::CompareSwap), 4, 0, 1));
    let odd = refused(odd.unwrap_err());
    assert!(matches!(odd, CallError::Submit { piece: 0, .. }), "{odd}");
    let settle = ready(client.settle(&grant(OpType::Read), NAME));
    assert!(matches!(refused(settle.unwrap_err()), CallError::Submit { piece: 0, .. }));
    assert_eq!((client.calls(), bench.pool.free()), (0, bench.pool.count()));
}

#[test]
fn an_unknown_outcome_is_no_failure_and_names_what_can_be_asked_about() {
    let mut bench = Bench::new();
    let (client, add) = (bench.client.clone(), grant(OpType::FetchAdd));
    let mut ticket = client.fetch_add(&add, 0, 1);
    assert!(poll_once(&mut ticket).is_pending());
    recorded(bench.end_next(Fate::Lost));
    // It is asked about at once, and its target has forgotten.
    let forgotten = Fate::Says(Verdict::Forgotten, None);
    assert_eq!(
        bench.end_next(forgotten),
        CommandOp::Settle { op_type: OpType::FetchAdd, name: NAME }
    );
    let error = ready(ticket).unwrap_err();
    assert!(error.may_have_been_applied(), "{error}");
    assert!(error.to_string().contains("`settle`"), "{error}");
    let TransferError::Unknown(outcome) = error else { panic!("{error}") };
    assert_eq!((outcome.status, outcome.in_doubt), (CallStatus::Unknown, Some(NAME)));
    // Later.
    let applied = Fate::Says(Verdict::Applied, Some(41));
    let (told, _) = bench.run(client.settle(&add, NAME), applied);
    assert_eq!(told, Ok(Settlement { verdict: Verdict::Applied, result: Some(41) }));
    // In vain: nothing is known then that was not known before.
    let question = client.settle(&add, NAME).timeout(Duration::ZERO);
    let (told, _) = bench.run(question, Fate::Ends(OpStatus::Nack));
    let Err(TransferError::Unknown(outcome)) = told else { panic!("{told:?}") };
    assert_eq!(outcome.in_doubt, Some(NAME));
    // A failed op was not applied, and says so.
    let none = RetryPolicy::NONE;
    let add = client.fetch_add(&add, 0, 1).retry(none);
    let (result, _) = bench.run(add, Fate::Ends(OpStatus::Nack));
    let error = result.unwrap_err();
    assert!(!error.may_have_been_applied() && matches!(error, TransferError::Failed(_)));
    assert!(error.to_string().ends_with("it was not applied, and will not be"), "{error}");
}

#[test]
fn an_op_that_its_target_is_asked_about_comes_to_what_the_target_says() {
    let mut bench = Bench::new();
    let (client, add) = (bench.client.clone(), grant(OpType::FetchAdd));
    let mut ticket = client.fetch_add(&add, 0, 1);
    assert!(poll_once(&mut ticket).is_pending());
    bench.end_next(Fate::Lost);
    bench.end_next(Fate::Says(Verdict::Applied, Some(6)));
    assert_eq!(ready(ticket), Ok(6));
    let mut ticket = client.fetch_add(&add, 0, 1);
    assert!(poll_once(&mut ticket).is_pending());
    bench.end_next(Fate::Lost);
    bench.end_next(Fate::Says(Verdict::NotApplied, None));
    recorded(bench.end_next(Fate::Found(7)));
    assert_eq!(ready(ticket), Ok(7));
}

#[test]
fn where_no_receive_is_posted_an_op_is_offered_again_and_then_says_so() {
    let mut bench = Bench::new();
    let (client, to_notify) = (bench.client.clone(), grant(OpType::Notify));
    let not_ready = Fate::Ends(OpStatus::RemoteNotReady);
    let mut notify = client.notify(&to_notify, 1);
    assert!(poll_once(&mut notify).is_pending());
    for _ in 0..5 {
        recorded(bench.end_next(not_ready));
        assert!(poll_once(&mut notify).is_pending());
    }
    recorded(bench.end_next(OK));
    assert_eq!(ready(notify), Ok(()));
    let hasty = client.notify(&to_notify, 1).retry(RetryPolicy::NONE);
    let (result, _) = bench.run(hasty, not_ready);
    let Err(TransferError::Failed(outcome)) = result else { panic!("{result:?}") };
    assert_eq!(outcome.status, CallStatus::Failed(OpStatus::RemoteNotReady));
    // For no longer than its time.
    let patient = RetryPolicy::DEFAULT.with(|it| it.not_ready = Duration::from_secs(5));
    let mut notify = client.notify(&to_notify, 1).retry(patient).timeout(Duration::from_millis(1));
    let result = loop {
        if let Poll::Ready(result) = poll_once(&mut notify) {
            break result;
        }
        if let Some(command) = bench.engine.take() {
            bench.engine.end(command.slot, not_ready);
        }
        thread::yield_now();
    };
    let Err(TransferError::Failed(outcome)) = result else { panic!("{result:?}") };
    assert_eq!(outcome.status, CallStatus::DeadlineExceeded);
    // Dropped while it backs off: it is never offered again.
    let mut dropped = client.notify(&to_notify, 1);
    assert!(poll_once(&mut dropped).is_pending());
    bench.end_next(not_ready);
    drop(dropped);
    bench.client.poll();
    assert_eq!((bench.engine.take(), client.calls()), (None, 0));
}

#[test]
fn an_op_that_is_dropped_keeps_its_buffer_until_it_is_over_and_is_asked_about_once() {
    let mut bench = Bench::new();
    let (client, to_send) = (bench.client.clone(), grant(OpType::Send));
    let all = bench.pool.count();
    // Never polled, and refused nothing: it was not submitted.
    drop(client.send(&to_send, bench.buf(8), 1));
    assert_eq!((client.calls(), bench.pool.free()), (0, all));
    for fate in [OK, Fate::Ends(OpStatus::Nack), Fate::Lost] {
        let mut send = client.send(&to_send, bench.buf(8), 1);
        assert!(poll_once(&mut send).is_pending());
        let command = bench.next();
        drop(send);
        client.poll();
        assert_eq!((client.calls(), bench.pool.free()), (1, all - 1), "its bytes may still go");
        bench.engine.end(command.slot, fate);
        client.poll();
        if matches!(fate, Fate::Lost) {
            let asks = bench.end_next(Fate::Ends(OpStatus::Timeout));
            assert!(matches!(asks, CommandOp::Settle { .. }), "{asks:?}");
        }
        assert_eq!((bench.engine.take(), client.calls()), (None, 0));
        assert_eq!(bench.pool.free(), all);
    }
}

#[test]
fn ops_wait_in_the_line_with_transfers_and_their_time_passes_there() {
    let mut bench = Bench::with(ExecutorConfig::default().with(|it| it.calls = 1));
    let (client, add) = (bench.client.clone(), grant(OpType::FetchAdd));
    let mut first = client.read(&grant(OpType::Read), 0, bench.buf(64));
    assert!(poll_once(&mut first).is_pending());
    let mut second = client.fetch_add(&add, 0, 1);
    assert!(poll_once(&mut second).is_pending());
    let full = ready(client.fetch_add(&add, 0, 1).or_full());
    assert_eq!(full, Err(TransferError::Full { calls: 1, waiting: 1 }));
    let soon = Duration::from_micros(1);
    let (result, buf) =
        until_ready(client.send(&grant(OpType::Send), bench.buf(8), 1).timeout(soon));
    let Err(TransferError::Failed(outcome)) = result else { panic!("{result:?}") };
    assert_eq!((outcome.status, outcome.missing[0].len), (CallStatus::DeadlineExceeded, 8));
    drop(buf);
    let told = until_ready(client.settle(&add, NAME).timeout(soon));
    let Err(TransferError::Unknown(outcome)) = told else { panic!("{told:?}") };
    assert_eq!(client.waiting(), 1);
    assert_eq!(outcome.in_doubt, Some(NAME), "whoever has not asked knows nothing new");
    // The place goes to the one that waits, though nobody polls its future.
    bench.end_next(OK);
    recorded(bench.end_next(Fate::Found(3)));
    assert_eq!(ready(second), Ok(3));
    ready(first).0.unwrap();
}

#[test]
fn an_op_that_is_fenced_goes_after_all_that_was_before_it() {
    let mut bench = Bench::new();
    let (client, add) = (bench.client.clone(), grant(OpType::FetchAdd));
    let mut first = client.fetch_add(&add, 0, 1);
    let mut second = client.fetch_add(&add, 0, 2).fenced();
    let mut third = client.settle(&add, NAME).fenced();
    assert!(poll_once(&mut first).is_pending());
    assert!(poll_once(&mut second).is_pending());
    assert!(poll_once(&mut third).is_pending());
    for addend in [1, 2] {
        let command = bench.next();
        let op = RecordedOp::FetchAdd { remote_offset: 0, addend };
        assert_eq!((recorded(command.op), bench.engine.take()), (op, None), "one at a time");
        bench.engine.end(command.slot, Fate::Found(addend));
    }
    assert_eq!((ready(first), ready(second)), (Ok(1), Ok(2)));
    bench.end_next(Fate::Says(Verdict::Applied, Some(1)));
    assert_eq!(ready(third).unwrap().result, Some(1));
}

#[test]
fn ops_under_way_are_unfinished_when_the_engine_ends_and_may_have_been_applied() {
    let mut bench = Bench::new();
    let (client, to_send) = (bench.client.clone(), grant(OpType::Send));
    let mut send = client.send(&to_send, bench.buf(8), 1);
    assert!(poll_once(&mut send).is_pending());
    bench.next();
    bench.engine.end_engine();
    let (result, buf) = ready(send);
    assert_eq!(result, Err(TransferError::Unfinished(WaitError::EngineGone)));
    assert!(result.unwrap_err().may_have_been_applied());
    drop(buf);
    assert_eq!(bench.pool.free(), bench.pool.count());
}

#[test]
fn a_message_is_in_the_queue_until_a_future_takes_it_and_its_receive_until_it_is_dropped() {
    let mut bench = Bench::new();
    let mut receiver = bench.client.receiver(bench.queue.take().unwrap());
    assert_eq!((receiver.posted(), bench.engine.posted()), (4, 4), "all are posted");
    assert!(receiver.try_recv().is_none());
    let mut recv = receiver.recv();
    assert!(poll_once(&mut recv).is_pending());
    bench.engine.publish(1);
    bench.client.poll();
    // Woken, and dropped without being polled.
    drop(recv);
    bench.engine.publish(2);
    let first = ready(receiver.recv()).unwrap();
    assert_eq!((first.immediate, first.op_type), (1, OpType::Notify));
    assert_eq!(first.to_vec(), [], "an event has no bytes");
    assert!(first.read(&mut []).is_err());
    let second = receiver.try_recv().unwrap();
    assert_eq!(second.event().immediate, 2);
    assert_eq!((receiver.posted(), bench.engine.posted()), (2, 2));
    drop(first);
    assert_eq!((receiver.posted(), bench.engine.posted()), (3, 3));
    // A message may outlive its receiver.
    drop(receiver);
    drop(second);
    assert_eq!(bench.engine.posted(), 4);
}

#[test]
fn a_waiter_for_an_event_is_woken_once_and_by_no_other_event() {
    let mut bench = Bench::new();
    let mut receiver = bench.client.receiver(bench.queue.take().unwrap());
    let count = Arc::new(Count::default());
    let waker = Waker::from(count.clone());
    let mut context = Context::from_waker(&waker);
    let woken = || count.0.load(SeqCst);
    {
        let mut recv = receiver.recv();
        for _ in 0..3 {
            assert!(pin!(&mut recv).poll(&mut context).is_pending());
        }
        bench.client.poll();
        assert_eq!(woken(), 0);
        bench.engine.publish(1);
        bench.engine.publish(2);
        for _ in 0..3 {
            bench.client.poll();
        }
        assert_eq!(woken(), 1);
        assert!(pin!(&mut recv).poll(&mut context).is_ready());
    }
    // The second event is there already: nobody waits for it.
    bench.client.poll();
    assert_eq!(woken(), 1);
    assert!(receiver.try_recv().is_some());
    // A future that moved to another task wakes that one.
    let mut recv = receiver.recv();
    assert!(pin!(&mut recv).poll(&mut context).is_pending());
    assert!(poll_once(&mut recv).is_pending());
    bench.engine.publish(3);
    bench.client.poll();
    assert_eq!(woken(), 1);
    drop(recv);
    // And one that was dropped wakes nobody.
    assert_eq!(ready(receiver.recv()).unwrap().immediate, 3);
    let mut recv = receiver.recv();
    assert!(pin!(&mut recv).poll(&mut context).is_pending());
    drop(recv);
    bench.engine.publish(4);
    bench.client.poll();
    assert_eq!(woken(), 1);
}

#[test]
fn nobody_may_sleep_beside_an_event_that_somebody_waits_for() {
    let mut bench = Bench::new();
    let client = bench.client.clone();
    let may_sleep = || client.handle.shared().with(|state, _| state.may_sleep()).unwrap();
    let mut receiver = client.receiver(bench.queue.take().unwrap());
    let mut recv = receiver.recv();
    assert!(poll_once(&mut recv).is_pending() && may_sleep());
    bench.engine.publish(1);
    assert!(!may_sleep(), "its future has not been woken");
    client.poll();
    assert!(may_sleep(), "it has been");
    drop(recv);
    bench.engine.publish(2);
    assert!(may_sleep(), "nobody waits");
}

#[test]
fn a_thread_that_sleeps_gets_every_event_with_and_without_calls() {
    const EVENTS: u64 = 2000;
    let Bench { client, mut engine, pool, queue } = Bench::new();
    let mut receiver = client.receiver(queue.unwrap());
    let engine = thread::spawn(move || {
        for number in 0..EVENTS {
            engine.publish(number);
            // Reads that are under way meanwhile.
            while let Some(command) = engine.take() {
                engine.end(command.slot, OK);
            }
        }
        engine
    });
    let all = async {
        for number in 0..EVENTS {
            assert_eq!(receiver.recv().await.unwrap().immediate, number);
            if number % 7 == 0 {
                let mut buf = pool.try_acquire().unwrap();
                buf.set_len(64);
                // Given up at once: it goes on beside the next events.
                let mut read = client.read(&grant(OpType::Read), 0, buf);
                let _ = poll_once(&mut read);
                drop(read);
                while pool.free() == 0 {
                    client.poll();
                }
            }
        }
    };
    client.block_on(all).unwrap();
    engine.join().unwrap().end_engine();
}

#[test]
fn events_from_before_the_engines_end_are_received_first() {
    let mut bench = Bench::new();
    let mut receiver = bench.client.receiver(bench.queue.take().unwrap());
    bench.engine.publish(1);
    bench.engine.end_engine();
    assert_eq!(ready(receiver.recv()).unwrap().immediate, 1);
    assert_eq!(ready(receiver.recv()).map(|it| it.immediate), Err(WaitError::EngineGone));
    // A waiting future is told.
    let mut bench = Bench::new();
    let mut receiver = bench.client.receiver(bench.queue.take().unwrap());
    let engine = bench.engine;
    let ends = thread::spawn(move || {
        engine.end_engine();
        engine
    });
    let gone = bench.client.block_on(receiver.recv()).unwrap();
    assert_eq!(gone.map(|it| it.immediate), Err(WaitError::EngineGone));
    drop(ends.join().unwrap());
}
