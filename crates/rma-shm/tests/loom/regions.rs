//! Regions under loom: the order of copies, the atomics on words, and a receive queue, whose events
//! come after the bytes of its buffers.
//!
//! Copies of two and three words are *short* and go word by word, longer ones are *long* and have a
//! middle, as from 256 bytes on elsewhere. Each order is explored together with a flaw that breaks
//! it, which the model must find.

use crate::{line, ring};
use loom::{
    sync::{Arc, Notify},
    thread,
};
use rma_shm::{Consumer, Doorbell, Line, Producer, Region};

const WORD: usize = 8;
const SHORT: usize = 3;
const LONG: usize = 4;

fn region(words: usize) -> Arc<Region> {
    Arc::new(Region::new(words * WORD).unwrap())
}

/// `words` words that all hold `number`.
fn filled(number: u64, words: usize) -> Vec<u8> {
    number.to_ne_bytes().repeat(words)
}

/// Reads `words` words at word `first`, by copies of `part` bytes in ascending order.
fn read(region: &Region, first: usize, words: usize, part: usize) -> Vec<u64> {
    let mut bytes = vec![0; words * WORD];
    for (n, bytes) in bytes.chunks_mut(part).enumerate() {
        region.copy_out((first * WORD + n * part) as u64, bytes).unwrap();
    }
    numbers(&bytes)
}

fn numbers(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect()
}

fn offset(word: usize) -> u64 {
    (word * WORD) as u64
}

/// A circular region, the shortest that there can be, and the word of it that has `before_end - 1`
/// words between itself and the end.
fn circular(before_end: usize) -> (Arc<Region>, usize) {
    let region = Region::circular(64).unwrap();
    let words = region.len() / WORD;
    (Arc::new(region), words - before_end)
}

type CopyIn = fn(&Region, u64, &[u8]);

fn ordered(region: &Region, offset: u64, bytes: &[u8]) {
    region.copy_in_ordered(offset, bytes).unwrap();
}

fn plain(region: &Region, offset: u64, bytes: &[u8]) {
    region.copy_in(offset, bytes).unwrap();
}

/// A poller that looks at the last word while messages are copied one over the other.
fn explore_poller(words: usize, messages: u64, copy_in: CopyIn) {
    explore_poller_of(move || (region(words), 0), words, messages, copy_in);
}

/// As [`explore_poller`], of a region and the word in it at which messages begin.
fn explore_poller_of<R>(place: R, words: usize, messages: u64, copy_in: CopyIn)
where
    R: Fn() -> (Arc<Region>, usize) + Send + Sync + 'static,
{
    loom::model(move || {
        let (region, first) = place();
        let engine = {
            let region = Arc::clone(&region);
            thread::spawn(move || {
                (1..=messages).for_each(|n| copy_in(&region, offset(first), &filled(n, words)));
            })
        };
        let last = words - 1;
        let bell = region.load_acquire(offset(first + last)).unwrap();
        // The next message may be on its way.
        let data = read(&region, first, last, last * WORD);
        assert!(data.iter().all(|word| *word >= bell), "the bell overtook its data");
        engine.join().unwrap();
    });
}

#[test]
fn a_poller_of_the_last_word_of_an_ordered_copy_finds_all_of_it() {
    explore_poller(2, 2, ordered);
    explore_poller(SHORT, 2, ordered);
    explore_poller(LONG + 1, 1, ordered);
}

#[test]
#[should_panic(expected = "the bell overtook its data")]
fn a_poller_of_the_last_word_of_a_plain_copy_does_not() {
    explore_poller(2, 1, plain);
}

#[test]
fn a_poller_of_the_last_word_of_an_ordered_copy_across_the_end_finds_all_of_it() {
    explore_poller_of(|| circular(1), 2, 2, ordered);
    explore_poller_of(|| circular(1), SHORT, 2, ordered);
    explore_poller_of(|| circular(2), SHORT, 2, ordered);
    explore_poller_of(|| circular(LONG), LONG + 1, 1, ordered);
    explore_poller_of(|| circular(1), LONG + 1, 1, ordered);
}

#[test]
#[should_panic(expected = "the bell overtook its data")]
fn a_poller_of_the_last_word_of_a_plain_copy_across_the_end_does_not() {
    explore_poller_of(|| circular(1), 2, 1, plain);
}

/// Both halves say it.
const RUNG: u64 = 1 << 32 | 1;

/// The application stores data, then a bell in front of it with Release. A remote host READs.
fn explore_bell(words: usize, read: fn(&Region, usize) -> Vec<u64>) {
    explore_bell_of(move || (region(words), 0), words, move |region, _| read(region, words));
}

/// As [`explore_bell`], of a region and the word in it that is the bell.
fn explore_bell_of<R, F>(place: R, words: usize, read: F)
where
    R: Fn() -> (Arc<Region>, usize) + Send + Sync + 'static,
    F: Fn(&Region, usize) -> Vec<u64> + Send + Sync + 'static,
{
    loom::model(move || {
        let (region, bell) = place();
        let application = {
            let region = Arc::clone(&region);
            thread::spawn(move || {
                region.copy_in(offset(bell + 1), &filled(RUNG, words - 1)).unwrap();
                region.store_release(offset(bell), RUNG).unwrap();
            })
        };
        let found = read(&region, bell);
        assert!(found.iter().all(|word| *word >= found[0]), "the bell was read after its data");
        application.join().unwrap();
    });
}

#[test]
fn a_read_that_finds_the_bell_in_front_finds_the_data() {
    let by_one_copy = |region: &Region, words| read(region, 0, words, words * WORD);
    explore_bell(SHORT, by_one_copy);
    explore_bell(LONG + 1, by_one_copy);
    explore_bell(SHORT, |region, words| read(region, 0, words, WORD));
    explore_bell(LONG + 1, |region, words| read(region, 0, words, LONG * WORD));
    // Cut inside a word, which is then loaded twice.
    explore_bell(SHORT, |region, words| read(region, 0, words, WORD + 4));
    // Of half the bell.
    explore_bell(SHORT, |region, words| {
        let mut bytes = vec![0; words * WORD];
        region.copy_out(4, &mut bytes[4..]).unwrap();
        bytes.copy_within(4..8, 0);
        numbers(&bytes)
    });
}

#[test]
fn a_read_that_finds_the_bell_before_the_end_finds_the_data_behind_it() {
    let of = |words, part| move |region: &Region, bell| read(region, bell, words, part);
    explore_bell_of(|| circular(1), SHORT, of(SHORT, SHORT * WORD));
    explore_bell_of(|| circular(2), SHORT, of(SHORT, WORD + 4));
    explore_bell_of(|| circular(1), LONG + 1, of(LONG + 1, (LONG + 1) * WORD));
}

#[test]
#[should_panic(expected = "the bell was read after its data")]
fn copies_in_another_order_may_find_the_bell_without_the_data() {
    explore_bell(2, |region, _| {
        let data = read(region, 1, 1, WORD);
        [read(region, 0, 1, WORD), data].concat()
    });
}

/// [number, data, number]: whole where the numbers are equal.
fn explore_snapshot(words: usize, part: usize, write: fn(&Region, usize)) {
    loom::model(move || {
        let region = region(words);
        let application = {
            let region = Arc::clone(&region);
            thread::spawn(move || write(&region, words))
        };
        let found = read(&region, 0, words, part);
        if found[0] == found[words - 1] {
            assert!(found.iter().all(|word| *word == found[0]), "torn between equal numbers");
        }
        application.join().unwrap();
    });
}

fn write_last_to_first(region: &Region, words: usize) {
    region.store_first(offset(words - 1), 1).unwrap();
    region.copy_in(offset(1), &filled(1, words - 2)).unwrap();
    region.store_release(0, 1).unwrap();
}

#[test]
fn a_read_between_two_numbers_is_whole_if_the_writer_goes_the_other_way() {
    explore_snapshot(SHORT, SHORT * WORD, write_last_to_first);
    explore_snapshot(LONG, LONG * WORD, write_last_to_first);
    explore_snapshot(LONG + 1, LONG * WORD, write_last_to_first);
    explore_snapshot(LONG + 2, LONG * WORD, write_last_to_first);
}

#[test]
#[should_panic(expected = "torn between equal numbers")]
fn a_read_between_two_numbers_may_be_torn_if_the_writer_goes_its_way() {
    explore_snapshot(SHORT, SHORT * WORD, |region, words| ordered(region, 0, &filled(1, words)));
}

#[test]
fn additions_exchanges_and_copies_of_two_threads_are_all_there() {
    loom::model(|| {
        let region = region(1);
        let other = {
            let region = Arc::clone(&region);
            thread::spawn(move || region.fetch_add(0, 1).unwrap())
        };
        let found = region.compare_exchange(0, 0, 5).unwrap();
        let added = other.join().unwrap();
        let is = region.load_acquire(0).unwrap();
        assert!([(0, 5, 6), (1, 0, 1)].contains(&(found, added, is)), "{found} {added} {is}");
    });
    loom::model(|| {
        let region = region(1);
        let other = {
            let region = Arc::clone(&region);
            thread::spawn(move || region.copy_in(0, &[7; 4]).unwrap())
        };
        let high = u64::from_ne_bytes([0, 0, 0, 0, 1, 0, 0, 0]);
        region.fetch_add(0, high).unwrap();
        other.join().unwrap();
        assert_eq!(read(&region, 0, 1, WORD), [u64::from_ne_bytes([7, 7, 7, 7, 1, 0, 0, 0])]);
    });
}

/// Two clients take a lock with COMPARE_SWAP, one gives it back with a store, one by FETCH_ADD.
#[test]
fn the_holder_of_the_lock_sees_earlier_writes_under_it() {
    const LOCK: u64 = 0;
    fn lock(region: &Region) {
        while region.compare_exchange(LOCK, 0, 1).unwrap() != 0 {
            thread::yield_now();
        }
    }
    fn write_one_more(region: &Region) {
        let count = read(region, 1, 1, WORD)[0] + 1;
        region.copy_in(offset(1), &count.to_ne_bytes()).unwrap();
    }
    loom::model(|| {
        let region = region(2);
        let other = {
            let region = Arc::clone(&region);
            thread::spawn(move || {
                lock(&region);
                write_one_more(&region);
                region.store_release(LOCK, 0).unwrap();
            })
        };
        lock(&region);
        write_one_more(&region);
        region.fetch_add(LOCK, u64::MAX).unwrap();
        other.join().unwrap();
        assert_eq!(read(&region, 0, 2, WORD), [0, 2]);
    });
}

/// The engine's side of a receive queue that has one buffer: it takes a post for each message,
/// copies the message over the one before, and tells.
fn serve(buffer: &Region, posts: &mut Consumer, events: &mut Producer, messages: u64) {
    for n in 1..=messages {
        while posts.pop().is_none() {
            thread::yield_now();
        }
        buffer.copy_in(0, &filled(n, 1)).unwrap();
        events.push(&line(n)).expect("no more posts were taken than there is room for events");
    }
}

fn check_message(buffer: &Region, n: u64, event: &Line) {
    assert_eq!(*event, line(n));
    assert_eq!(read(buffer, 0, 1, WORD), [n], "the event overtook its bytes, or the next did");
}

/// Posts go one way and events the other.
//= channels#2.2-applied-by-publishing
//= type=test
#[test]
fn an_event_comes_after_the_bytes_of_its_buffer_and_the_next_bytes_after_the_next_post() {
    const MESSAGES: u64 = 2;
    loom::model(|| {
        let buffer = region(1);
        let (mut posts, mut taken) = ring(1);
        let (mut given, mut events) = ring(1);
        posts.push(&line(1)).unwrap();
        let engine = {
            let buffer = Arc::clone(&buffer);
            thread::spawn(move || serve(&buffer, &mut taken, &mut given, MESSAGES))
        };
        for n in 1..=MESSAGES {
            let event = loop {
                match events.pop() {
                    Some(event) => break event,
                    None => thread::yield_now(),
                }
            };
            check_message(&buffer, n, &event);
            if n < MESSAGES {
                posts.push(&line(n + 1)).expect("the post before was taken");
            }
        }
        engine.join().unwrap();
    });
}

/// A wake-up that is lost is a deadlock, which loom reports.
#[test]
fn a_sleeper_for_the_event_of_its_post_is_woken() {
    loom::model(|| {
        let buffer = region(1);
        let (doorbell, eventfd) = (Doorbell::new(), Arc::new(Notify::new()));
        let (mut posts, mut taken) = ring(1);
        let (mut given, mut events) = ring(1);
        let engine = {
            let (buffer, doorbell, eventfd) = (buffer.clone(), doorbell.clone(), eventfd.clone());
            thread::spawn(move || {
                serve(&buffer, &mut taken, &mut given, 1);
                if doorbell.needs_ring() {
                    eventfd.notify();
                }
            })
        };
        posts.push(&line(1)).unwrap();
        let event = loop {
            if let Some(event) = events.pop() {
                break event;
            }
            doorbell.prepare_sleep();
            if events.is_empty() {
                eventfd.wait();
            }
            doorbell.awake();
        };
        check_message(&buffer, 1, &event);
        engine.join().unwrap();
    });
}
