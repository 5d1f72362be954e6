use std::collections::BTreeSet;

use proptest::prelude::*;
use rma_crypto::Portable;

use super::*;
use crate::names::{Era, Nonce, PdId, Qpn};

fn binding(f: &str, z: &str) -> Binding {
    let connection = ConnectionName {
        pd: PdId(1),
        qpn_z: Qpn::from_bits(2),
        qpn_f: Qpn::from_bits(3),
        nonce: Nonce(4),
        era: Era(5),
    };
    Binding { connection, f: f.parse().unwrap(), z: z.parse().unwrap() }
}

const SPAN: OpenSpan = OpenSpan {
    op: WqeOp::Recv,
    slot: Slot(6),
    generation: Generation(7),
    mr: MrId(8),
    mr_offset: 9,
    len: 10,
};

/// Bindings that differ from the first in one field each.
fn bindings(f: &str, z: &str, other: &str) -> Vec<Binding> {
    let first = binding(f, z);
    let with = |change: fn(&mut ConnectionName)| {
        let mut connection = first.connection;
        change(&mut connection);
        Binding { connection, ..first }
    };
    vec![
        first,
        with(|it| it.pd.0 += 16),
        with(|it| it.qpn_z = Qpn::from_bits(16)),
        with(|it| it.qpn_f = Qpn::from_bits(16)),
        with(|it| it.nonce.0 += 16),
        with(|it| it.era.0 += 16),
        binding(z, f),
        binding(other, z),
        binding(f, other),
    ]
}

//= star#ours-key-of-connection
//= type=test
//= star#ours-key-of-wqe
//= type=test
//= star#ours-key-of-mr
//= type=test
//= star#ours-key-of-half
//= type=test
#[test]
fn every_name_changes_the_key_and_no_two_kinds_share_one() {
    let spans = [
        SPAN,
        OpenSpan { op: WqeOp::Read, ..SPAN },
        OpenSpan { slot: Slot(16), ..SPAN },
        OpenSpan { generation: Generation(16), ..SPAN },
        OpenSpan { mr: MrId(16), ..SPAN },
        OpenSpan { mr_offset: 16, ..SPAN },
        OpenSpan { len: 16, ..SPAN },
    ];
    let pd = PdKeySchedule::new(&Portable, &PdKey::from_bytes([3; 16]));
    let mut keys = BTreeSet::new();
    let mut count = 0;
    for family in
        [["192.0.2.1", "192.0.2.2", "192.0.2.3"], ["2001:db8::1", "2001:db8::2", "2001:db8::3"]]
    {
        for binding in bindings(family[0], family[1], family[2]) {
            let mut messages =
                vec![KeyMessage::of_connection(&binding), KeyMessage::of_half(&binding)];
            // The other half, whose sides change places.
            let connection = ConnectionName {
                qpn_z: binding.connection.qpn_f,
                qpn_f: binding.connection.qpn_z,
                ..binding.connection
            };
            let other = Binding { connection, f: binding.z, z: binding.f };
            messages.push(KeyMessage::of_half(&other));
            messages.extend(spans.iter().map(|span| KeyMessage::of_wqe(&binding, span)));
            for op in [WqeOp::Write, WqeOp::Read] {
                messages.extend(
                    [8, 9, 8 | 1 << 32].map(|mr| KeyMessage::of_mr(&binding, op, MrName(mr))),
                );
            }
            count += messages.len();
            keys.extend(messages.iter().map(|it| *pd.derive(&Portable, it).expose()));
        }
    }
    assert_eq!((keys.len(), count), (count, 2 * 9 * (3 + 7 + 6)));
}

#[test]
fn another_pd_key_gives_other_keys() {
    let message = KeyMessage::of_connection(&binding("192.0.2.1", "192.0.2.2"));
    let key = |octet| {
        let pd = PdKeySchedule::new(&Portable, &PdKey::from_bytes([octet; 16]));
        pd.derive(&Portable, &message)
    };
    assert_ne!(key(1), key(2));
}

#[test]
fn messages_are_as_long_as_the_wire_document_says() {
    for (f, z, lens) in
        [("192.0.2.1", "192.0.2.2", [28, 53, 37]), ("2001:db8::1", "2001:db8::2", [52, 77, 61])]
    {
        let binding = binding(f, z);
        let messages = [
            KeyMessage::of_connection(&binding),
            KeyMessage::of_wqe(&binding, &SPAN),
            KeyMessage::of_mr(&binding, WqeOp::Read, MrName(1)),
        ];
        assert_eq!(messages.map(|it| it.octets().len()), lens);
    }
}

#[test]
fn debug_output_shows_no_key() {
    let key = PdKey::from_bytes([0x5a; 16]);
    let text = format!(
        "{key:?} {:?} {:?}",
        PdKeySchedule::new(&Portable, &key),
        FrameKey::from_bytes([0x5a; 16])
    );
    assert!(!text.contains("5a") && !text.contains("90"), "{text}");
}

proptest! {
    #[test]
    fn spans_that_differ_have_messages_that_differ(
        a: (u32, u32, u32, u64, u32), b: (u32, u32, u32, u64, u32),
    ) {
        let span = |(slot, generation, mr, mr_offset, len)| OpenSpan {
            op: WqeOp::Send,
            slot: Slot(slot),
            generation: Generation(generation),
            mr: MrId(mr),
            mr_offset,
            len,
        };
        let binding = binding("2001:db8::1", "2001:db8::2");
        let of = |it| KeyMessage::of_wqe(&binding, &span(it));
        prop_assert_eq!(of(a) == of(b), a == b);
    }
}
