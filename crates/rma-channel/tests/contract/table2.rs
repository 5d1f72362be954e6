//! Table 2, measured, beside the paper's row: what the crate says of itself is so.

use rma_contract::{
    kinds::rows,
    measured::{COLUMNS, hops, measure},
};

#[test]
fn each_kind_offers_and_costs_what_its_row_says() {
    println!("{COLUMNS}");
    let mut measured = 0;
    for row in rows().filter(|row| !row.prefetches && !row.is_duplex) {
        println!("{}", measure(row).unwrap());
        measured += 1;
    }
    println!("{measured} of {} kinds", rma_channel::Kind::ALL.len());
    assert!(measured > 0, "no kind was measured");
}

#[test]
fn a_message_that_is_prefetched_comes_with_its_bell_in_two_hops() {
    for row in rows().filter(|row| row.prefetches) {
        for (len, delivered) in [(8, 2), (64, 2), (504, 2), (505, 4), (4000, 4)] {
            assert_eq!(hops(row, len).delivered, delivered, "{len} bytes, of 504 prefetched");
        }
    }
}
