use super::*;
use rustix::io::dup;
use std::sync::Arc;

#[test]
fn a_heap_mapping_is_zero_aligned_and_as_long_as_asked_for() {
    for len in [1, 8, ALIGN, ALIGN + 1, 3 * PAGE_SIZE] {
        let mapping = Mapping::heap(len);
        assert_eq!(mapping.words().as_ptr() as usize % ALIGN, 0);
        assert_eq!((mapping.len(), mapping.is_empty()), (len, false));
        assert_eq!(mapping.words().len() * WORD, len.next_multiple_of(ALIGN));
        assert!(mapping.words().iter().all(|word| word.load(Ordering::Relaxed) == 0));
        assert!(mapping.fd().is_none());
    }
    assert!(Mapping::heap(0).is_empty());
}

#[test]
fn joining_shared_memory_of_an_agreed_length_succeeds_or_tells_its_length() {
    let made = Mapping::memfd("rma-test", 5000).unwrap();
    let given = || dup(made.fd().unwrap()).unwrap();
    let joined = Mapping::join_of_len(given(), 5000).unwrap();
    made.words()[600].store(7, Ordering::Relaxed);
    assert_eq!(joined.words()[600].load(Ordering::Relaxed), 7);
    for len in [0, 4999, 5001, 8192] {
        let error = Mapping::join_of_len(given(), len).unwrap_err();
        assert_eq!(error, MemoryError::OtherLength { len, found: 5000 });
        assert!(error.to_string().contains("5000"), "{error}");
    }
}

#[test]
fn memory_that_could_be_shrunk_is_not_joined() {
    let fd = rustix::fs::memfd_create("rma-test", MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&fd, 4096).unwrap();
    let given = || dup(&fd).unwrap();
    assert_eq!(Mapping::join(given()).unwrap_err(), MemoryError::NotSealed);
    assert_eq!(Mapping::join_of_len(given(), 4096).unwrap_err(), MemoryError::NotSealed);
    rustix::fs::fcntl_add_seals(&fd, SealFlags::GROW).unwrap();
    assert_eq!(Mapping::join(given()).unwrap_err(), MemoryError::NotSealed);
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK).unwrap();
    assert_eq!(Mapping::join_of_len(given(), 4096).unwrap().len(), 4096);
}

#[test]
fn a_label_is_there_once_all_that_it_labels_is() {
    let mapping = Arc::new(Mapping::heap(3 * ALIGN));
    let label = Label { kind: *b"sometime", version: 3, size: 9 };
    mapping.words()[ALIGN / WORD..].iter().for_each(|word| word.store(5, Ordering::Relaxed));
    let filled = label.format(&mapping, ALIGN, 2 * ALIGN, || {
        assert!(mapping.words().iter().all(|word| word.load(Ordering::Relaxed) == 0));
        assert!(label.check(&mapping, ALIGN, 2 * ALIGN).is_err());
        Ok(11)
    });
    assert_eq!(filled, Ok(11));
    assert_eq!(label.check(&mapping, ALIGN, 2 * ALIGN), Ok(()));
    assert!(label.check(&mapping, ALIGN, 2 * ALIGN + 1).is_err(), "longer than the mapping");
    let error = label.check(&mapping, 0, ALIGN).unwrap_err();
    assert_eq!(error, LayoutError::Kind { at: 0, found: [0; 8], wanted: *b"sometime" });
    assert!(error.to_string().contains("sometime"), "{error}");
    let refused = label.format(&mapping, ALIGN, ALIGN, || Err::<(), _>(error));
    assert_eq!(refused, Err(error));
    assert!(label.check(&mapping, ALIGN, ALIGN).is_err());
}
