//! How much a thread reads of transcripts, for whoever waits for it, and the end of its reading when nobody does any more.
//!
//! Owns the way from the readers of this room to a counter that somebody outside has set up for the work of one thread.
//! Knows neither who that is nor what the work is.

use std::cell::RefCell;
use std::fmt;
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;

/// What counts.
pub trait Meter: Send + Sync {
    /// There are so many bytes more to read.
    fn expect_bytes(&self, bytes: u64);
    /// So many bytes more were read.
    ///
    /// # Errors
    /// When nothing more is to be read, since nobody waits for it.
    fn count_bytes(&self, bytes: u64) -> io::Result<()>;
}

thread_local! {
    static METER: RefCell<Option<Arc<dyn Meter>>> = const { RefCell::new(None) };
}

/// Does some work whose reading is counted, on this thread.
pub fn with_meter<T>(meter: Arc<dyn Meter>, work: impl FnOnce() -> T) -> T {
    /// Puts back what was there, also when the work panics: blocking threads are used again.
    struct Before(Option<Arc<dyn Meter>>);
    impl Drop for Before {
        fn drop(&mut self) {
            METER.with(|current| current.replace(self.0.take()));
        }
    }
    let _before = Before(METER.with(|current| current.replace(Some(meter))));
    work()
}

/// A reader whose bytes are counted for the work that was under way on the thread that made it, whichever thread reads.
pub struct Metered<R> {
    reader: R,
    meter: Option<Arc<dyn Meter>>,
}

impl<R> Metered<R> {
    /// Counts what is read of `reader`, of which `bytes` are expected; 0 where that is not known.
    pub fn new(reader: R, bytes: u64) -> Self {
        let SharedMeter(meter) = SharedMeter::new(bytes);
        Self { reader, meter }
    }
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buffer)?;
        if let Some(meter) = &self.meter {
            meter.count_bytes(count as u64)?;
        }
        Ok(count)
    }
}

/// A reader that says how many bytes were read, to somebody who may end the reading.
pub struct ProgressReader<R, F> {
    reader: R,
    step: F,
}

impl<R, F: FnMut(u64) -> io::Result<()>> ProgressReader<R, F> {
    /// Calls `step` with how many more bytes of `reader` were read.
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

/// Counts what threads of one's own read of many files, for the work that was under way on the thread that made it.
pub struct SharedMeter(Option<Arc<dyn Meter>>);

impl SharedMeter {
    /// Counts what is read, of which `bytes` are expected.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        let meter = METER.with_borrow(Clone::clone);
        if let Some(meter) = &meter {
            meter.expect_bytes(bytes);
        }
        Self(meter)
    }

    /// So many bytes more were read.
    ///
    /// # Errors
    /// When nothing more is to be read, since nobody waits for it.
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
