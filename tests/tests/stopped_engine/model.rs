//! The expected content of the target's region, area by area.
//!
//! Invariant: an area changes in the model only when its op is reported, or when a change has been
//! counted.

use rma_xdp::OpStatus;

/// Bytes of the region that belong to one op.
pub(crate) const AREA: u64 = 4096;

/// How often the other host is stopped.
pub(crate) const ROUNDS: u64 = 40;

/// How many at most, while they have not met what they are about: how a machine runs the two
/// processes may keep them from it for long.
pub(crate) const ROUNDS_MAX: u64 = 8 * ROUNDS;

/// Areas of a round, of which each WRITE has one.
pub(crate) const PER_ROUND: u64 = 128;

/// Areas of the region: the first, which shows where it is, and those of all rounds.
pub(crate) const AREAS: u64 = 1 + ROUNDS_MAX * PER_ROUND;

/// Numbers that follow from a seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// WRITE number `index` of a test.
#[derive(Clone, Copy)]
pub(crate) struct Op {
    index: u64,
    /// The offset in its area.
    pub(crate) offset: u64,
    pub(crate) size: u32,
}

impl Op {
    pub(crate) const fn remote_offset(&self) -> u64 {
        self.index * AREA + self.offset
    }
}

/// The op, and what its area holds once it is done.
pub(crate) fn area(index: u64) -> (Op, [u8; AREA as usize]) {
    let mut random = Random(index << 32);
    // The first fills its area, so that it is found by how that begins.
    let size = if index == 0 { AREA } else { 1 + random.below(AREA) };
    let offset = random.below(AREA - size + 1);
    let mut bytes = [0; AREA as usize];
    for chunk in bytes[offset as usize..(offset + size) as usize].chunks_mut(8) {
        // No byte is zero, as those are that were never written.
        let word = (random.next() | 0x8080_8080_8080_8080).to_ne_bytes();
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
    (Op { index, offset, size: size as u32 }, bytes)
}

/// The region as it should be, and how to look at the region as it is.
pub(crate) struct Model<F> {
    bytes: Vec<u8>,
    /// The content at the last look.
    seen: Vec<u8>,
    ok: Vec<bool>,
    look: F,
}

impl<F: Fn(u64, &mut [u8])> Model<F> {
    pub(crate) fn new(look: F) -> Self {
        let bytes = vec![0; (AREAS * AREA) as usize];
        Self { seen: bytes.clone(), bytes, ok: vec![false; AREAS as usize], look }
    }

    /// An op has been reported: from now on its area does not change.
    pub(crate) fn report(&mut self, index: u64, status: OpStatus) {
        let start = (index * AREA) as usize;
        let now = &mut self.bytes[start..][..AREA as usize];
        (self.look)(index * AREA, now);
        self.ok[index as usize] = status == OpStatus::Ok;
        assert_only_of_the_op(index, now, status == OpStatus::Ok);
    }

    /// How many areas are not as they were. From now on they should stay as they are.
    pub(crate) fn changes(&mut self) -> u64 {
        (self.look)(0, &mut self.seen);
        let mut changes = 0;
        let areas = self.seen.chunks(AREA as usize).zip(self.bytes.chunks_mut(AREA as usize));
        for (index, (now, before)) in areas.enumerate() {
            if now != before {
                assert!(!self.ok[index], "the op had been reported as OK");
                assert_only_of_the_op(index as u64, now, false);
                before.copy_from_slice(now);
                changes += 1;
            }
        }
        changes
    }
}

/// An area holds bytes of its op, in their places, and where not, what was there before. All of
/// them, if it is done.
fn assert_only_of_the_op(index: u64, now: &[u8], is_done: bool) {
    let (_, done) = area(index);
    let fits = now.iter().zip(done).all(|(&now, done)| now == done || now == 0 && !is_done);
    assert!(fits, "area {index} holds other bytes than its op's");
}
