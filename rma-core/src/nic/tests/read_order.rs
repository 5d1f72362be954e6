//! A read whose request comes twice is answered twice, and what lands of the two answers keeps the
//! order of a read: its first word was loaded before all others, and its last after them.

use super::{read::seal_as_responder, *};

/// The contents of the responder's memory when a read is answered, and when it is answered again.
const CONTENTS: [u8; 2] = [1, 2];

/// The frames of two answers to one read of 4 KiB, the second ones after a change of all bytes.
fn answered_twice() -> (Pair, Vec<Flight>) {
    let mut pair = Pair::new();
    pair.issue(pair.read(0, 0, 4096));
    let request = pair.requests().remove(0);
    let mut answers = Vec::new();
    for content in CONTENTS {
        pair.b.memory.copy_in(0, &[content; 4096]).unwrap();
        pair.deliver_to_b(&request).unwrap();
        let answer = pair.responses();
        assert_eq!(answer.len(), 3);
        answers.extend(answer);
    }
    (pair, answers)
}

/// All orders of so many things.
fn orders(count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let shorter = orders(count - 1);
    let with = |place: usize| {
        shorter.iter().map(move |order| {
            let mut order = order.clone();
            order.insert(place, count - 1);
            order
        })
    };
    (0..count).flat_map(with).collect()
}

//= channels#2.3-ordered-reading
//= type=test
#[test]
fn of_two_answers_to_one_read_no_first_word_lands_that_is_younger_than_another() {
    let mut ends = [0; 3];
    for order in orders(6) {
        let (mut pair, answers) = answered_twice();
        for &index in &order {
            let _ = pair.deliver_to_a(&answers[index]);
        }
        assert_eq!(pair.status(), OpStatus::Ok, "{order:?}");
        let mut there = [0; 4096];
        pair.a.memory.copy_out(0, &mut there).unwrap();
        let (first, last) = (there[0], there[4095]);
        assert!(there.iter().all(|&it| first <= it && it <= last), "{order:?}");
        ends[usize::from(first - 1 + last - 1)] += 1;
    }
    // All of the first answer, some of each, and all of the second.
    assert!(ends.iter().all(|&count| count > 0), "{ends:?}");
}

#[test]
fn a_partly_landed_read_refuses_only_data_loaded_out_of_order() {
    let first_of = |places: &[usize]| {
        let (mut pair, answers) = answered_twice();
        places.iter().map(|&it| pair.deliver_to_a(&answers[it])).collect::<Vec<_>>()
    };
    let (landed, refused) = (Ok(()), Err(DropReason::Duplicate));
    // Behind the beginning of the first answer comes the end of the second.
    assert_eq!(first_of(&[0, 4, 5]), [landed; 3]);
    assert_eq!(first_of(&[5, 1, 0]), [landed; 3]);
    // The first word of the second answer behind others of the first, and before them.
    assert_eq!(first_of(&[1, 3, 0, 2]), [landed, refused, landed, landed]);
    assert_eq!(first_of(&[3, 1, 4, 5]), [landed, refused, landed, landed]);
    // The last word of the first answer behind others of the second, and before them.
    assert_eq!(first_of(&[4, 2, 5, 0]), [landed, refused, landed, landed]);
    assert_eq!(first_of(&[2, 4, 1, 0]), [landed, refused, landed, landed]);
}

/// Another engine counts for itself: which part was loaded first is not known.
#[test]
fn parts_of_answers_of_two_engines_do_not_land_in_one_read() {
    let mut pair = Pair::new();
    pair.issue(pair.read(0, 0, 4096));
    let request = pair.requests().remove(0);
    pair.deliver_to_b(&request).unwrap();
    let answers = pair.responses();
    let theirs = seal_as_responder(&request, &pair.key_for(OpType::Read), 1408, 1408);
    pair.deliver_to_a(&answers[0]).unwrap();
    assert_eq!(pair.deliver_to_a(&theirs), Err(DropReason::Duplicate));
    answers[1..].iter().for_each(|it| pair.deliver_to_a(it).unwrap());
    assert_eq!(pair.status(), OpStatus::Ok);
}
