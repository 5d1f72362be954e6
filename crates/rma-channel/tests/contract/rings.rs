//! Rings as memory: a sender's writes land whole, in pieces or not at all, and the receiver looks
//! between any two of them.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::{collections::VecDeque, sync::Arc};

use proptest::prelude::*;
use rma_channel::ring::{Malformed, Position, Reads, Record, RingLen, without_zeroing, zeroing};
use rma_core::region::{NicTag, RegionId, RegisteredRegion};
use rma_shm::Region;

/// A ring's memory, as its receiver has it.
fn ring(len: u64) -> RegisteredRegion {
    let memory = Arc::new(Region::circular(len as usize).unwrap());
    RegisteredRegion::new(RegionId::from_bits(1), memory, NicTag(1))
}

/// The message with this number: as long as its sender says, and unlike all others.
fn message(number: u64, len: u32) -> Vec<u8> {
    (0..len).map(|at| (number.wrapping_mul(0x9e37_79b9) >> (at % 4 * 8)) as u8 ^ at as u8).collect()
}

/// The common interface of both kinds of records.
trait Ring {
    /// Sends a message, if there is room: what lands and where, in the order in which it does.
    fn send(&mut self, message: &[u8]) -> Option<Vec<(u64, Vec<u8>)>>;
    fn told(&mut self, tail: u64);
    fn reader(&mut self) -> &mut dyn Reads;

    fn poll(&mut self) -> Result<Option<Record>, Malformed> {
        self.reader().poll()
    }

    /// Gives a record back, and returns the tail, if it is news.
    fn give_back(&mut self, record: Record) -> Option<u64> {
        self.reader().give_back(record).map(|tail| tail.to_bits())
    }

    fn memory(&mut self) -> &RegisteredRegion {
        self.reader().ring()
    }
}

struct Zeroing {
    len: RingLen,
    head: u64,
    tail: u64,
    reader: zeroing::Reader,
}

impl Ring for Zeroing {
    fn send(&mut self, message: &[u8]) -> Option<Vec<(u64, Vec<u8>)>> {
        let (position, len) = (self.head, message.len() as u32);
        let head = position + zeroing::footprint(len);
        if head - self.tail > self.len.get() {
            return None;
        }
        self.head = head;
        let place = zeroing::Place::at(self.len, Position::from_bits(position), len);
        let mut image = place.first_word().to_vec();
        image.extend(message);
        image.resize(place.len as usize - 8, 0);
        image.extend(place.last_word());
        // The last word last, the others in any order: downwards, a word at a time.
        let words = (0..place.len / 8 - 1).rev().chain([place.len / 8 - 1]);
        let write = |word: u64| {
            let at = word as usize * 8;
            (place.remote_offset + word * 8, image[at..at + 8].to_vec())
        };
        Some(words.map(write).collect())
    }

    fn told(&mut self, tail: u64) {
        self.tail = tail;
    }

    fn reader(&mut self) -> &mut dyn Reads {
        &mut self.reader
    }
}

struct WithoutZeroing(without_zeroing::Writer, without_zeroing::Reader);

impl Ring for WithoutZeroing {
    fn send(&mut self, message: &[u8]) -> Option<Vec<(u64, Vec<u8>)>> {
        self.0.add(message)?;
        let run = self.0.take_run().unwrap();
        assert_eq!((run.messages, self.0.gathered()), (1, 0));
        self.0.set_bell(&run);
        let mut image = vec![0; run.len as usize];
        self.0.image().read(run.remote_offset, &mut image).unwrap();
        let words = (0..run.len).step_by(8);
        let write = |at: u64| (run.remote_offset + at, image[at as usize..][..8].to_vec());
        Some(words.map(write).collect())
    }

    fn told(&mut self, tail: u64) {
        self.0.room_mut().told(Position::from_bits(tail)).unwrap();
    }

    fn reader(&mut self) -> &mut dyn Reads {
        &mut self.1
    }
}

/// Both kinds, for messages of up to `len_max` bytes.
fn both(len: u64, len_max: u32) -> [Box<dyn Ring>; 2] {
    let ring_len = RingLen::new(len).unwrap();
    let reader = zeroing::Reader::new(ring(len), ring_len, len_max);
    let zeroing = Zeroing { len: ring_len, head: 0, tail: 0, reader };
    let without = WithoutZeroing(
        without_zeroing::Writer::new(ring(len), ring_len, len_max),
        without_zeroing::Reader::new(ring(len), ring_len, len_max),
    );
    [Box::new(zeroing), Box::new(without)]
}

/// Gives back a message, which is as it was sent.
fn release(ring: &mut dyn Ring, lens: &[u32], number: u64, record: Record) {
    let mut bytes = vec![0; record.len() as usize];
    ring.memory().read(record.offset(), &mut bytes).unwrap();
    assert_eq!(bytes, message(number, lens[number as usize]), "as it was sent");
    if let Some(tail) = ring.give_back(record) {
        ring.told(tail);
    }
}

/// Sends messages of these lengths; the receiver looks after every word that lands, and keeps up to
/// `kept` of them, which it gives back youngest first.
fn run(ring: &mut dyn Ring, lens: &[u32], kept: usize) {
    let (mut sent, mut got) = (0, 0);
    let mut held: Vec<(u64, Record)> = Vec::new();
    let mut landing: VecDeque<(u64, Vec<u8>)> = VecDeque::new();
    while got < lens.len() as u64 {
        if landing.is_empty() && sent < lens.len() {
            if let Some(words) = ring.send(&message(sent as u64, lens[sent])) {
                sent += 1;
                landing = words.into();
            } else {
                assert!(!held.is_empty(), "an empty ring has room");
                held.drain(..).rev().for_each(|(number, it)| release(ring, lens, number, it));
            }
        }
        if let Some((offset, word)) = landing.pop_front() {
            ring.memory().write(offset, &word).unwrap();
        }
        while let Some(record) = ring.poll().unwrap() {
            assert!(landing.is_empty(), "not before its last word is there");
            assert_eq!(record.len(), lens[got as usize]);
            held.push((got, record));
            got += 1;
        }
        if landing.is_empty() {
            assert_eq!(got, sent as u64, "all that has landed is seen");
        }
        if held.len() > kept {
            // From the middle: the ring is freed in its own order all the same.
            let (number, record) = held.remove(held.len() / 2);
            release(ring, lens, number, record);
        }
    }
}

proptest! {
    //= channels#4.3-with-zeroing
    //= type=test
    //= channels#4.3-without-zeroing
    //= type=test
    #[test]
    fn messages_come_whole_once_and_in_order_whatever_their_lengths(
        lens in prop::collection::vec(1_u32..=180, 1..200),
        kept in 0_usize..4,
    ) {
        for mut ring in both(256, 180) {
            run(&mut *ring, &lens, kept);
        }
    }
}

#[test]
fn records_wrap_at_every_word_of_the_ring() {
    // Of 17 bytes: footprints that share no divisor with the ring but a word, or a line.
    for len in [1, 8, 17, 40, 100] {
        for mut ring in both(512, 100) {
            run(&mut *ring, &vec![len; 400], 1);
        }
    }
}

#[test]
fn a_full_ring_refuses_and_takes_more_when_it_is_told() {
    for mut ring in both(128, 112) {
        let words = ring.send(&message(0, 100)).unwrap();
        assert!(ring.send(&message(1, 100)).is_none());
        for (offset, word) in words {
            ring.memory().write(offset, &word).unwrap();
        }
        let record = ring.poll().unwrap().unwrap();
        let tail = ring.give_back(record).unwrap();
        assert!(ring.send(&message(1, 100)).is_none(), "the sender does not know yet");
        ring.told(tail);
        assert!(ring.send(&message(1, 100)).is_some());
    }
}

#[test]
fn an_impossible_record_is_an_error_and_stays_one() {
    for mut ring in both(256, 100) {
        let bell = match ring.send(&message(0, 100)) {
            // The first word with zeroing, the last one without.
            Some(words) if words[0].0 > words[words.len() - 2].0 => words[words.len() - 2].0,
            Some(words) => words[words.len() - 1].0,
            None => unreachable!(),
        };
        let heads = [101, 1 << 32 | 5, u64::MAX, 1 << 31, 5 << 32];
        for head in heads {
            ring.memory().store(bell, u64::to_le(head)).unwrap();
            for _ in 0..2 {
                let error = ring.poll().unwrap_err();
                let is_told = matches!(error, Malformed::Record { position: 0, head: it, len_max: 100, lap: 0 } if it == head);
                assert!(is_told, "{error}");
            }
        }
    }
}

proptest! {
    #[test]
    fn nothing_that_stands_in_a_ring_makes_its_reader_panic_or_read_outside(
        words in prop::collection::vec(any::<u64>(), 32),
        polls in 1_usize..40,
    ) {
        for mut ring in both(256, 240) {
            for (at, word) in words.iter().enumerate() {
                // Small lengths of the first lap, or anything.
                let word = if word % 2 == 0 { word % 256 } else { *word };
                ring.memory().store(at as u64 * 8, word.to_le()).unwrap();
            }
            for _ in 0..polls {
                let Ok(Some(record)) = ring.poll() else { break };
                prop_assert!((1..=240).contains(&record.len()));
                let mut bytes = vec![0; record.len() as usize];
                ring.memory().read(record.offset(), &mut bytes).unwrap();
                let _ = ring.give_back(record);
            }
        }
    }
}

//= channels#4.3-without-zeroing
//= type=test
#[test]
fn messages_that_go_together_are_one_run_with_one_bell() {
    let len = RingLen::new(1024).unwrap();
    let mut writer = without_zeroing::Writer::new(ring(1024), len, 100);
    let mut reader = without_zeroing::Reader::new(ring(1024), len, 100);
    let mut numbers = 0..;
    for messages in [1, 3, 7, 2, 5, 4, 6] {
        let first = numbers.start;
        for number in numbers.by_ref().take(messages) {
            writer.add(&message(number, 10 + number as u32 % 50)).unwrap();
        }
        let run = writer.take_run().unwrap();
        assert_eq!(run.messages as usize, messages);
        writer.set_bell(&run);
        let mut image = vec![0; run.len as usize];
        writer.image().read(run.remote_offset, &mut image).unwrap();
        // One op could carry it; or the last of several has so many bytes.
        let last = [run.len, run.len - 1, 64, 8, 1][messages % 5].min(run.len) as u32;
        let split = run.split(last);
        assert!(split < run.len && split.is_multiple_of(8) && split > 0);
        for range in [0..split, split..run.len] {
            assert_eq!(reader.poll(), Ok(None), "nothing is there before the bell");
            let bytes = &image[range.start as usize..range.end as usize];
            reader.ring().write(run.remote_offset + range.start, bytes).unwrap();
        }
        for number in first..first + messages as u64 {
            let record = reader.poll().unwrap().unwrap();
            let mut bytes = vec![0; record.len() as usize];
            reader.ring().read(record.offset(), &mut bytes).unwrap();
            assert_eq!(bytes, message(number, 10 + number as u32 % 50));
            let tail = reader.give_back(record).unwrap();
            writer.room_mut().told(tail).unwrap();
        }
        assert_eq!(reader.poll(), Ok(None));
    }
    assert_eq!(writer.take_run(), None);
}

//= channels#4.3-with-zeroing
//= type=test
#[test]
fn a_receiver_with_zeroing_leaves_a_ring_of_zeros() {
    let [mut ring, _] = both(256, 180);
    run(&mut *ring, &[180, 1, 90, 64, 7, 8, 9, 100, 33], 0);
    let mut bytes = vec![1; 256];
    ring.memory().read(0, &mut bytes).unwrap();
    let left = bytes.iter().filter(|&&byte| byte != 0).count();
    // At most the last message is held still.
    assert_eq!(left, 0);
}

/// Checks that a run's bytes of the run before are read from the image until its op is over.
#[test]
fn the_bell_of_a_run_is_not_in_the_image_before_it_is_set() {
    let len = RingLen::new(1024).unwrap();
    let mut writer = without_zeroing::Writer::new(ring(1024), len, 100);
    writer.add(&message(0, 20)).unwrap();
    let first = writer.take_run().unwrap();
    writer.set_bell(&first);
    writer.add(&message(1, 30)).unwrap();
    let second = writer.take_run().unwrap();
    assert_eq!(writer.image().load(first.remote_offset), Ok(0), "the lowest word of the first run");
    writer.set_bell(&second);
    assert_ne!(writer.image().load(first.remote_offset), Ok(0), "is the bell of the second");
}
