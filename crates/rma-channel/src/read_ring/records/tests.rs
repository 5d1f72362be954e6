//! The sender stores, and a READ loads, in every order that each of them may: what a READ finds
//! behind a bell is true.

use std::{cell::RefCell, collections::VecDeque};

use proptest::prelude::*;

use super::*;

const RING: u64 = 256;

/// A writer's steps in memory, in words: what lands in any order, then what comes after all of it.
#[derive(Default)]
struct Steps(RefCell<VecDeque<(u64, u64, bool)>>);

impl Memory for Steps {
    fn put(&self, offset: u64, bytes: &[u8]) {
        // The model's messages are whole words.
        for (at, word) in bytes.chunks(8).enumerate() {
            let at = (offset + at as u64 * 8) % RING;
            let word = u64::from_le_bytes(word.try_into().unwrap());
            self.0.borrow_mut().push_back((at, word, false));
        }
    }

    fn publish(&self, offset: u64, word: u64) {
        self.0.borrow_mut().push_back((offset, word, true));
    }
}

fn message(number: u64, words: u32) -> Vec<u8> {
    (0..words)
        .flat_map(|at| (number << 32 | u64::from(at) << 8 | 0x1_0000_0003).to_le_bytes())
        .collect()
}

/// Sends messages of so many words each, while a reader makes looks of so many bytes: it loads the
/// first word first, and the others in an order drawn from `seed`, between any two stores.
fn run(lens: &[u32], ahead: u32, mut seed: u64) {
    let mut draw = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let ring = RingLen::new(RING).unwrap();
    let mut writer = Writer::new(Steps::default(), ring, ahead);
    let mut memory = vec![0_u64; RING as usize / 8];
    let look = (WORD + padded(ahead)) / 8;
    let (mut sent, mut got) = (0, 0);
    let mut tail = Position::ZERO;
    let mut begins: Vec<Position> = Vec::new();
    while got < lens.len() {
        // Half a store at a time: a few, in any order between those that publish.
        let mut store = |writer: &mut Writer<Steps>,
                         draw: &mut dyn FnMut(u64) -> u64,
                         memory: &mut Vec<u64>| {
            let free = writer.memory().0.borrow().is_empty();
            if free
                && sent < lens.len()
                && let Some(at) = writer.write(tail, &message(sent as u64, lens[sent]))
            {
                begins.push(at);
                sent += 1;
            }
            let mut steps = writer.memory().0.borrow_mut();
            let ready = steps.iter().position(|it| it.2).map_or(steps.len(), |at| at.max(1));
            if ready > 0 {
                let which = draw(ready as u64) as usize;
                // Stores to one word are in order.
                let offset = steps[which].0;
                let which = steps.iter().position(|it| it.0 == offset).unwrap();
                let (at, word, _) = steps.remove(which).unwrap();
                memory[at as usize / 8] = word;
            }
        };
        for _ in 0..draw(6) {
            store(&mut writer, &mut draw, &mut memory);
        }
        // A look from the tail on.
        let first = ring.offset(tail) / 8;
        let mut found = vec![None; look as usize];
        found[0] = Some(memory[first as usize]);
        while let Some(open) =
            (found.iter().filter(|it| it.is_none()).count() as u64).checked_sub(1)
        {
            for _ in 0..draw(4) {
                store(&mut writer, &mut draw, &mut memory);
            }
            let which = draw(open + 1) as usize;
            let (at, _) = found.iter().enumerate().filter(|it| it.1.is_none()).nth(which).unwrap();
            found[at] = Some(memory[(first as usize + at) % memory.len()]);
        }
        let found: Vec<u64> = found.into_iter().map(Option::unwrap).collect();
        // All bells in it are true, and the first message is what was sent.
        let (mut at, mut number) = (tail, got);
        while at.since(tail) / 8 < look {
            let word = found[(at.since(tail) / 8) as usize];
            let Some(len) = record(word, ring, 4096, at).expect("a bell or none") else { break };
            assert_eq!((begins[number], len), (at, lens[number] * 8), "message {number}");
            if number == got {
                let sent = message(number as u64, lens[number]);
                let landed = found[1..].iter().take(lens[number] as usize);
                for (word, sent) in landed.zip(sent.chunks(8)) {
                    assert_eq!(word.to_le_bytes(), sent, "of message {number}");
                }
            }
            (at, number) = (at.after(footprint(len)), number + 1);
        }
        if number > got {
            tail = tail.after(footprint(lens[got] * 8));
            got += 1;
        }
    }
}

proptest! {
    #[test]
    fn a_look_finds_the_truth_in_every_order_of_stores_and_loads(
        lens in proptest::collection::vec(1_u32..8, 1..40),
        ahead in prop::sample::select(vec![0_u32, 8, 40, 64, 100]),
        seed: u64,
    ) {
        run(&lens, ahead, seed);
    }
}

#[test]
fn a_ring_is_full_when_the_zeros_beyond_its_newest_message_would_fall_on_the_oldest() {
    let ring = RingLen::new(RING).unwrap();
    let mut writer = Writer::new(Steps::default(), ring, 64);
    assert_eq!(capacity(ring, 64), 184);
    for at in [0, 64, 120] {
        let words = if at == 64 { 6 } else { 7 };
        assert_eq!(writer.write(Position::ZERO, &message(1, words)), Some(Position::from_bits(at)));
    }
    assert_eq!(writer.write(Position::ZERO, &message(1, 1)), None);
    assert_eq!(
        writer.write(Position::from_bits(64), &message(1, 1)),
        Some(Position::from_bits(184))
    );
}

#[test]
fn a_word_that_is_no_bell_is_malformed() {
    let ring = RingLen::new(RING).unwrap();
    let at = Position::from_bits(3 * RING + 8);
    let good = ring.head(at, 100);
    assert_eq!(record(good, ring, 100, at), Ok(Some(100)));
    assert_eq!(record(0, ring, 100, at), Ok(None));
    for bad in [ring.head(at, 101), ring.head(at, 0), good ^ 1 << 32, 1, u64::MAX, 4 << 32] {
        let error = record(bad, ring, 100, at).unwrap_err();
        assert!(matches!(error, Malformed::Record { head, .. } if head == bad), "{error}");
    }
}
