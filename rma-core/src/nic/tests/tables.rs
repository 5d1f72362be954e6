//! Finite tables: how much each of their entries takes. That nothing else grows, the allocator is
//! asked in the `finite_tables` test of the `rma-tests` crate (P5).

use super::*;

/// The sizes of entries are those in the documentation of the settings. A change that makes them
/// larger changes both.
#[test]
fn entries_are_as_large_as_the_settings_say() {
    let memory = Pair::new().a.nic.memory();
    for (table, most) in [
        ("command slots", 340),
        ("regions", 18),
        ("inbound queue", 180),
        ("pending writes", 250),
        ("staging of ordered ops", 4100),
        ("outcome records", 60),
        ("events and records by region", 134),
    ] {
        let found = memory.iter().find(|it| it.table == table).expect("a table of that name");
        assert!((most * 9 / 10..=most).contains(&found.entry_len), "{found:?}");
    }
    assert!((450..520).contains(&size_of::<RegionEntry>()), "{}", size_of::<RegionEntry>());
}
