//! The READs of receivers, and their times: looks, and bodies beside them.

use super::*;

impl Channel {
    /// Polls the reader, which issues so many READs, and carries them out.
    fn reads(&mut self) -> usize {
        let issued = |it: &Self| it.readers[0].node.issued[OpType::Read as usize];
        let before = issued(self);
        self.poll_reader(0);
        let reads = issued(self) - before;
        self.hosts.serve_all(&mut self.readers[0].node);
        reads
    }
}

#[test]
fn a_message_that_comes_alone_is_waited_for_before_the_next_look() {
    for which in [Which::Detached, Which::Inlined(0), Which::Inlined(56)] {
        let mut it = Channel::open(which, 4096, 300, 1);
        it.settle(8);
        for number in 1..20 {
            assert_eq!(it.reads(), 1, "{which:?}: a look that finds nothing, {number}");
            it.send(300).unwrap();
            assert_eq!(it.reads(), 1, "{which:?}: the look that finds the message");
            let (mut reads, before) = (Vec::new(), it.readers[0].got);
            while it.readers[0].got == before {
                reads.push(it.reads());
            }
            assert_eq!(reads, [1, 1], "{which:?}: the body, then the next look");
        }
    }
}

/// READs until a message that is sent to an idle reader is there.
#[test]
fn a_reader_that_trusts_asks_for_bells_and_bodies_alone() {
    for (which, looks) in
        [(Which::Detached, 2), (Which::Inlined(0), 2), (Which::Inlined(400), 1), (Which::Notify, 1)]
    {
        let mut it = Channel::open(which, 4096, 300, 1);
        it.settle(8);
        for number in 0..20 {
            it.send(300).unwrap();
            it.poll_sender();
            it.hosts.serve_all(&mut it.from);
            let mut reads = 0;
            // The ops under way were issued before.
            it.hosts.serve_all(&mut it.readers[0].node);
            while it.poll_reader(0) == 0 {
                reads += it.readers[0].node.engine.taken.len();
                it.hosts.serve_all(&mut it.readers[0].node);
                assert!(reads < 10, "{which:?}");
            }
            // With a look the message has come by the one that was under way.
            let besides = usize::from(looks == 1 && which != Which::Notify);
            assert!(reads <= 2 - besides, "{which:?}: message {number} by {reads} READs");
            it.settle(3);
        }
    }
}

#[test]
fn several_messages_come_with_one_read_where_it_is_known_how_far() {
    for (which, bodies) in [(Which::Detached, 1), (Which::Inlined(400), 2), (Which::Notify, 1)] {
        let mut it = Channel::open(which, 4096, 300, 1);
        it.settle(8);
        it.hosts.serve_all(&mut it.readers[0].node);
        it.poll_reader(0);
        for _ in 0..6 {
            it.send(40).unwrap();
        }
        // The first notice, and that for what has gathered.
        for _ in 0..2 {
            it.poll_sender();
            it.hosts.serve_all(&mut it.from);
        }
        let mut rounds = 0;
        while it.readers[0].got < 6 {
            it.hosts.serve_all(&mut it.readers[0].node);
            it.poll_reader(0);
            rounds += 1;
            assert!(rounds < 10);
        }
        assert!(rounds <= bodies + 1, "{which:?}: {rounds} round trips");
    }
}
