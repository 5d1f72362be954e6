//! One ring, used by rules and against them, beside a model of its memory.
//!
//! The model has all that there is: the two indexes, the entries, and what each side has counted.
//! So it says of every call what must come of it, also after somebody wrote into the memory.

use std::collections::VecDeque;

use rma_shm::{Capacity, Consumer, Line, Producer, RingMemory};

use super::script::{Script, hostile_index};

pub(super) fn run(script: &mut Script<'_>) {
    let mut ring = Ring::new(script);
    while let Some(step) = script.byte() {
        ring.step(step, script);
    }
    ring.check();
}

struct Ring {
    producer: Producer,
    consumer: Consumer,
    memory: RingMemory,
    capacity: u32,
    /// How many lines have been made: no two are alike.
    made: u64,
    tail: u32,
    head: u32,
    entries: Vec<Line>,
    pushed: Side,
    popped: Side,
    /// The lines in the ring, as long as everybody keeps to the rules.
    honest: Option<VecDeque<Line>>,
}

/// The knowledge of one side.
struct Side {
    own: u32,
    /// Lines in the ring, by the last sight of the other side that made sense.
    lines: u32,
    impossible: u64,
}

impl Ring {
    fn new(script: &mut Script<'_>) -> Self {
        let shape = script.number();
        let capacity = 1_u32 << (shape % 5);
        // Around zero, where the indexes wrap.
        let first = (script.number() as u32).wrapping_sub(1 << 7);
        let memory = RingMemory::heap(Capacity::new(capacity as usize).expect("a power of two"));
        memory.set_tail(first);
        memory.set_head(first);
        let side = || Side { own: first, lines: 0, impossible: 0 };
        Self {
            producer: memory.clone().into_producer(),
            consumer: memory.clone().into_consumer(),
            memory,
            capacity,
            made: 0,
            tail: first,
            head: first,
            entries: vec![Line::ZERO; capacity as usize],
            pushed: side(),
            popped: side(),
            honest: Some(VecDeque::new()),
        }
    }

    fn step(&mut self, step: u8, script: &mut Script<'_>) {
        match step % 12 {
            0..=2 => self.push(),
            3..=5 => self.pop(),
            6 => {
                let lines = script.number();
                let fits = lines <= (self.capacity - self.see_head(lines)) as usize;
                assert_eq!(self.producer.has_room_for(lines), fits);
            }
            7 => {
                let has_line = self.see_tail() > 0;
                assert_eq!(self.consumer.has_line(), has_line);
            }
            8 => {
                self.honest = None;
                self.tail = hostile_index(self.tail, script);
                self.memory.set_tail(self.tail);
            }
            9 => {
                self.honest = None;
                self.head = hostile_index(self.head, script);
                self.memory.set_head(self.head);
            }
            10 => {
                self.honest = None;
                let (index, line) = (script.number() as u32, self.line());
                self.memory.set_line(index, &line);
                self.entries[(index % self.capacity) as usize] = line;
            }
            _ => {
                self.honest = None;
                let (index, word, value) = (script.number() as u32, script.number(), script.wide());
                self.memory.set_word(index, word, value);
                self.entries[(index % self.capacity) as usize].0[word % Line::WORDS] = value;
            }
        }
        self.check();
    }

    fn line(&mut self) -> Line {
        self.made += 1;
        Line(core::array::from_fn(|i| self.made << 8 | i as u64))
    }

    /// Returns the producer's view of free lines after it has asked for room for `wanted` lines.
    fn see_head(&mut self, wanted: usize) -> u32 {
        let side = &mut self.pushed;
        if wanted > (self.capacity - side.lines) as usize {
            match side.own.wrapping_sub(self.head) {
                // It has taken some of what it had not.
                lines if lines <= side.lines => side.lines = lines,
                _ => side.impossible += 1,
            }
        }
        side.lines
    }

    /// Returns the consumer's view of lines after it has asked for a line.
    fn see_tail(&mut self) -> u32 {
        let side = &mut self.popped;
        if side.lines == 0 {
            match self.tail.wrapping_sub(side.own) {
                lines if lines <= self.capacity => side.lines = lines,
                _ => side.impossible += 1,
            }
        }
        side.lines
    }

    fn push(&mut self) {
        let line = self.line();
        let fits = self.see_head(1) < self.capacity;
        assert_eq!(self.producer.push(&line).is_ok(), fits);
        if let Some(honest) = &mut self.honest {
            assert_eq!(fits, honest.len() < self.capacity as usize, "refused wrongly");
            if fits {
                honest.push_back(line);
            }
        }
        if fits {
            let side = &mut self.pushed;
            self.entries[(side.own % self.capacity) as usize] = line;
            side.own = side.own.wrapping_add(1);
            side.lines += 1;
            self.tail = side.own;
        }
    }

    fn pop(&mut self) {
        let there = self.see_tail() > 0;
        let side = &mut self.popped;
        let line = there.then(|| self.entries[(side.own % self.capacity) as usize]);
        assert_eq!(self.consumer.pop(), line, "not what the entry holds");
        if let Some(honest) = &mut self.honest {
            assert_eq!(line, honest.pop_front(), "lost, duplicated or reordered");
        }
        if there {
            side.own = side.own.wrapping_add(1);
            side.lines -= 1;
            self.head = side.own;
        }
    }

    fn check(&self) {
        let Self { pushed, popped, capacity, .. } = self;
        assert_eq!((self.memory.tail(), self.memory.head()), (self.tail, self.head));
        assert_eq!(self.producer.impossible_indexes(), pushed.impossible);
        assert_eq!(self.consumer.impossible_indexes(), popped.impossible);
        let untaken = pushed.own.wrapping_sub(self.head);
        let untaken = if untaken <= pushed.lines { untaken } else { pushed.lines };
        assert_eq!(self.producer.len(), untaken as usize);
        let waiting = self.tail.wrapping_sub(popped.own);
        let possible = (popped.lines..=*capacity).contains(&waiting);
        let waiting = if possible { waiting } else { popped.lines };
        assert_eq!(self.consumer.len(), waiting as usize);
        if let Some(honest) = &self.honest {
            assert_eq!(pushed.impossible + popped.impossible, 0, "everybody kept to the rules");
            assert_eq!((self.producer.len(), self.consumer.len()), (honest.len(), honest.len()));
        }
    }
}
