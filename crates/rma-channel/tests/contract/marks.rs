//! Marks of Table 2 that are in the types: what sends without a copy, reads into the application's
//! memory, or may sleep, implements a trait, and nothing else does.

use core::marker::PhantomData;

use rma_channel::{
    Blocking, Kind, ReceiveInto, SendRegion, read_ring, read_slot, ring_buffer, send_recv,
    shared_ring,
    table::{Mark, Offer},
    write_slot,
};

/// The answer of a probe about a type that does not implement its trait.
trait IsNot {
    fn is(&self) -> bool {
        false
    }
}

/// A type that knows whether another implements a trait: a method of its own, which is there if
/// that one does, goes before the method of [`IsNot`].
macro_rules! probe {
    ($probe:ident, $of:path) => {
        struct $probe<T>(PhantomData<T>);

        impl<T: $of> $probe<T> {
            const fn is(&self) -> bool {
                true
            }
        }

        impl<T> IsNot for $probe<T> {}
    };
}

probe!(Sends, SendRegion);
probe!(Sleeps, Blocking);
probe!(Reads, ReceiveInto);

/// The traits that the ends of a kind implement.
struct Ends {
    kind: Kind,
    sends: bool,
    sleeps: bool,
    reads: bool,
}

macro_rules! ends {
    ($kind:ident, $($module:ident)::+, [$($receiver:ident),+]) => {
        Ends {
            kind: Kind::$kind,
            sends: Sends::<$($module)::+::Sender>(PhantomData).is(),
            sleeps: ends!(Sleeps, $($module)::+, $($receiver),+),
            reads: ends!(Reads, $($module)::+, $($receiver),+),
        }
    };
    ($probe:ident, $module:path, $first:ident, $second:ident) => {{
        use $module as module;
        $probe::<module::$first>(PhantomData).is() || $probe::<module::$second>(PhantomData).is()
    }};
    ($probe:ident, $module:path, $only:ident) => {{
        use $module as module;
        $probe::<module::$only>(PhantomData).is()
    }};
}

#[test]
fn the_abilities_of_a_kind_are_in_its_types() {
    let all = [
        ends!(SendRecvNormal, send_recv::normal, [Receiver]),
        ends!(SendRecvShared, send_recv::shared, [Receiver]),
        ends!(SendRecvBufferless, send_recv::bufferless, [Receiver]),
        ends!(WriteSlotDetached, write_slot::detached_bell, [Receiver, WakingReceiver]),
        ends!(WriteSlotInlined, write_slot::inlined_bell, [Receiver]),
        ends!(WriteSlotImmediate, write_slot::immediate, [Receiver]),
        ends!(WriteSlotReserve, write_slot::reserve_slot, [Receiver]),
        ends!(RingDetached, ring_buffer::detached_bell, [Receiver]),
        ends!(RingImmediate, ring_buffer::immediate, [Receiver]),
        ends!(RingWithZeroing, ring_buffer::with_zeroing, [Receiver]),
        ends!(RingWithoutZeroing, ring_buffer::without_zeroing, [Receiver]),
        ends!(SharedRingImmediate, shared_ring::immediate, [Receiver]),
        ends!(SharedRingWithZeroing, shared_ring::with_zeroing, [Receiver]),
        ends!(ReadSlotDetached, read_slot::detached_bell, [Receiver, Into]),
        ends!(ReadSlotInlined, read_slot::inlined_bell, [Receiver, Into]),
        ends!(ReadSlotNotify, read_slot::notify_receiver, [Receiver, Into]),
        ends!(ReadSlotIndirect, read_slot::indirect_read, [Receiver]),
        ends!(ReadRingDetached, read_ring::detached_bell, [Receiver, Into]),
        ends!(ReadRingInlined, read_ring::inlined_bell, [Receiver, Into]),
        ends!(ReadRingNotify, read_ring::notify_receiver, [Receiver, Into]),
    ];
    assert_eq!(all.each_ref().map(|it| it.kind), Kind::ALL);
    for Ends { kind, sends, sleeps, reads } in all {
        let Offer { blocking, zero_copy_send, zero_copy_receive, .. } = kind.ours().offer;
        let has = |mark| !matches!(mark, Mark::No | Mark::Nothing);
        assert_eq!(sends, has(zero_copy_send), "{kind}: sends where messages lie");
        assert_eq!(sleeps, has(blocking), "{kind}: sleeps");
        // Without READs of the receiver, messages lie where they were written.
        let is_read = kind.ours().is_read();
        assert_eq!(reads, is_read && has(zero_copy_receive), "{kind}: reads to a place");
    }
}
