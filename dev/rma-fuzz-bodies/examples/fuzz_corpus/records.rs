//! Short stories of channels for `record`: of each kind one that is honest, one in which ops fail,
//! and some in which something is written that is nobody's to write.

use std::collections::BTreeMap;

/// The step of an end, a host or the enemy: the low half of a step.
const SEND: u8 = 0;
const CLAIM: u8 = 2;
const GIVE_BACK: u8 = 4;
const SERVE: u8 = 6;
const APPLY: u8 = 7;
const FAIL: u8 = 8;
const LOSE: u8 = 9;
const PASS: u8 = 10;
const RECOVER: u8 = 11;
const POKE: u8 = 12;
const ASTRAY: u8 = 15;

/// Kinds of Table 2, by number; 0 stands for terms.
const KINDS: u8 = 20;

/// Messages of these lengths, each of which comes and is given back.
fn stream(lens: impl IntoIterator<Item = u8>) -> Vec<u8> {
    let mut story = Vec::new();
    for len in lens {
        story.extend([SEND, len, SERVE, SERVE, SERVE, CLAIM, GIVE_BACK, 0, SERVE]);
    }
    story
}

/// A message whose ops end in the wrong order, or not at all.
fn faults() -> Vec<u8> {
    let mut story = vec![SEND, 9, SEND, 1, SEND, 30, SERVE];
    story.extend([SEND, 9, LOSE, 0x80, PASS, 12, SERVE, LOSE, 1, PASS, 12, SERVE]);
    story.extend([SEND, 2, SEND, 3, APPLY, 1, APPLY, 0, SERVE, CLAIM, CLAIM, GIVE_BACK, 1]);
    story.extend([SEND, 5, FAIL, 1, 0, PASS, 15, SERVE, RECOVER, PASS, 15, RECOVER, SERVE]);
    story.extend([CLAIM, CLAIM, SEND, 1, SERVE, SERVE, CLAIM, GIVE_BACK, 0]);
    story
}

/// Somebody writes a word: which region, which word, and how it is made.
fn poked(before: u8, [region, word]: [u8; 2], made: &[u8]) -> Vec<u8> {
    let mut story = [stream(1..=before), vec![SEND, 2, SERVE, POKE, region, 0, word]].concat();
    story.extend(made);
    story.extend([SERVE, CLAIM, SEND, 4, SERVE, CLAIM, GIVE_BACK, 0, CLAIM, SERVE]);
    story
}

/// Somebody's op makes an event.
fn astray(made: &[u8]) -> Vec<u8> {
    let mut story = [stream([7, 1]), vec![SEND, 2, SERVE, ASTRAY, 0, 0]].concat();
    story.extend(made);
    story.extend([CLAIM, SERVE, CLAIM, SEND, 4, SERVE, CLAIM, GIVE_BACK, 0, CLAIM]);
    story
}

/// Three messages of one sender in a shared ring with zeroing: an op of the second is refused, so
/// the receiver recovers, and the third has an earlier position than the second in its new place.
const RECOVERED: [u8; 30] = [
    13, 6, SEND, 0, SEND, 0, SEND, 0, SERVE, SERVE, SERVE, CLAIM, 5, 8, 1, 0, PASS, 15, SERVE,
    RECOVER, PASS, 4, SERVE, PASS, 6, SERVE, SERVE, SERVE, CLAIM, CLAIM,
];

/// All stories, with their names.
pub(super) fn all() -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    for kind in 1..=KINDS {
        // Long messages in little room; and if there may be several ends, several.
        let shape = if kind % 2 == 0 { 0x02 } else { 0x1b };
        let mut add = |name: &str, story: Vec<u8>| {
            all.insert(format!("{kind:02}-{name}"), [vec![kind, shape], story].concat());
        };
        add("honest", stream((0..40).map(|number| number * 5)));
        add("faults", faults());
        for (name, region) in [("far-ahead", 0), ("far-beyond", 1), ("anything", 2)] {
            add(name, poked(0, [region, 0], &[2, 1, 2, 3, 4, 5, 6, 7, 8]));
        }
        add("a-little-off", poked(2, [1, 1], &[0, 8]));
        add("another-lap", poked(1, [0, 2], &[1, 1]));
        add("event", astray(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 9, 0, 64]));
    }
    all.insert("13-recovered".to_owned(), RECOVERED.to_vec());
    let grant = |op_type: u8| [vec![op_type, 1, 0, 200], vec![7]].concat();
    for kind in 1..=KINDS {
        // Numbers that are lengths and counts; grants for READ, WRITE and FETCH_ADD.
        let mut terms = vec![0, 0, 1, kind, 2 - u8::from(kind > 13), 3];
        terms.extend([1, 12, 0, 64, 0, 4]);
        terms.extend([grant(7), grant(0), grant(1)].concat());
        all.insert(format!("terms-{kind:02}"), terms);
    }
    all
}
