//! Counts how much of transcripts a thread reads, and stops the read if no caller waits for the result any more.
//!
//! The caller installs a counter for the work of one thread, and the readers of this module report to it. This module
//! does not know the caller or the work.

use std::cell::RefCell;
use std::fmt;
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;

/// Counts the bytes that are read.
pub trait Meter: Send + Sync {
    /// Announces that this many more bytes will be read.
    fn expect_bytes(&self, bytes: u64);
    /// Counts this many more bytes as read.
    ///
    /// # Errors
    /// If the reading should stop because nobody waits for it.
    fn count_bytes(&self, bytes: u64) -> io::Result<()>;
}

thread_local! {
    static METER: RefCell<Option<Arc<dyn Meter>>> = const { RefCell::new(None) };
}

/// Runs `work` on this thread and counts what it reads.
pub fn with_meter<T>(meter: Arc<dyn Meter>, work: impl FnOnce() -> T) -> T {
    /// Restores the previous meter even if the work panics, because blocking threads are reused.
    struct Before(Option<Arc<dyn Meter>>);
    impl Drop for Before {
        fn drop(&mut self) {
            METER.with(|current| current.replace(self.0.take()));
        }
    }
    let _before = Before(METER.with(|current| current.replace(Some(meter))));
    work()
}

/// A reader that counts its bytes for the work in progress on the thread that created it, whichever thread reads.
pub struct Metered<R> {
    reader: R,
    meter: SharedMeter,
}

impl<R> Metered<R> {
    /// Counts what is read from `reader`, which is expected to have `bytes` bytes; 0 if that is not known.
    pub fn new(reader: R, bytes: u64) -> Self {
        Self {
            reader,
            meter: SharedMeter::new(bytes),
        }
    }
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buffer)?;
        self.meter.count_bytes(count as u64)?;
        Ok(count)
    }
}

/// A reader that reports to a callback how many bytes were read. The callback may stop the reading.
pub struct ProgressReader<R, F> {
    reader: R,
    step: F,
}

impl<R, F: FnMut(u64) -> io::Result<()>> ProgressReader<R, F> {
    /// Calls `step` after each read with the number of bytes that it read.
    pub fn new(reader: R, step: F) -> Self {
        Self { reader, step }
    }
}

impl<R: Read, F: FnMut(u64) -> io::Result<()>> Read for ProgressReader<R, F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buffer)?;
        (self.step)(count as u64)?;
        Ok(count)
    }
}

impl<R: Seek> Seek for Metered<R> {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        self.reader.seek(position)
    }
}

/// Counts reads of several threads for the work in progress on the thread that created this meter.
pub struct SharedMeter(Option<Arc<dyn Meter>>);

impl SharedMeter {
    /// Counts reads of `bytes` expected bytes.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        let meter = METER.with_borrow(Clone::clone);
        if let Some(meter) = &meter {
            meter.expect_bytes(bytes);
        }
        Self(meter)
    }

    /// Counts this many more bytes as read.
    ///
    /// # Errors
    /// If the reading should stop because nobody waits for it.
    pub fn count_bytes(&self, bytes: u64) -> io::Result<()> {
        self.0.as_ref().map_or(Ok(()), |meter| meter.count_bytes(bytes))
    }
}

impl<R: fmt::Debug> fmt::Debug for Metered<R> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reader.fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[derive(Default)]
    struct Counter(AtomicU64, AtomicU64);

    impl Meter for Counter {
        fn expect_bytes(&self, bytes: u64) {
            self.0.fetch_add(bytes, Ordering::Relaxed);
        }

        fn count_bytes(&self, bytes: u64) -> io::Result<()> {
            self.1.fetch_add(bytes, Ordering::Relaxed);
            Ok(())
        }
    }

    #[test]
    fn what_is_read_within_the_work_counts_and_nothing_else() {
        let counter = Arc::new(Counter::default());
        let read = || {
            let mut text = String::new();
            Metered::new(&b"twelve bytes"[..], 12)
                .read_to_string(&mut text)
                .unwrap();
        };
        read();
        with_meter(Arc::clone(&counter) as Arc<dyn Meter>, read);
        let panicked =
            std::panic::catch_unwind(|| with_meter(Arc::new(Counter::default()), || panic!("within")));
        assert!(panicked.is_err());
        let mut elsewhere = with_meter(Arc::clone(&counter) as Arc<dyn Meter>, || {
            Metered::new(&b"more"[..], 4)
        });
        std::thread::scope(|scope| {
            scope.spawn(move || elsewhere.read_to_end(&mut Vec::new()).unwrap());
        });
        read();
        assert_eq!(counter.0.load(Ordering::Relaxed), 16);
        assert_eq!(counter.1.load(Ordering::Relaxed), 16);
    }
}
