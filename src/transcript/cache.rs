//! A bounded cache of values that were read, by key.
//!
//! This module bounds the size of the cache, and lets only one thread read a value while others wait for it. It does
//! not know what the values are, or when to read them again.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The value of one key, or `None` if it was not read yet. A thread that reads it holds the lock.
pub(super) type Slot<V> = Arc<Mutex<Option<V>>>;

/// The cached values, by key.
#[derive(Debug)]
pub(super) struct Cache<K, V> {
    limit_bytes: usize,
    newest_limit_bytes: usize,
    entries: Mutex<CacheEntries<K, V>>,
}

#[derive(Debug)]
struct CacheEntries<K, V> {
    by_key: HashMap<K, CachedValue<V>>,
    /// Incremented on each use.
    uses: u64,
    bytes: usize,
}

#[derive(Debug)]
struct CachedValue<V> {
    slot: Slot<V>,
    last_use: u64,
    bytes: usize,
}

impl<K: Eq + Hash, V> CacheEntries<K, V> {
    fn remove(&mut self, key: &K) {
        if let Some(entry) = self.by_key.remove(key) {
            self.bytes -= entry.bytes;
        }
    }
}

impl<K: Clone + Eq + Hash, V> Cache<K, V> {
    /// Creates a cache of at most this many bytes, which evicts the least recently used value first. The most
    /// recently used value alone may take up to `newest_limit_bytes`.
    pub(super) fn new(limit_bytes: usize, newest_limit_bytes: usize) -> Self {
        let kept = CacheEntries {
            by_key: HashMap::new(),
            uses: 0,
            bytes: 0,
        };
        Self {
            limit_bytes,
            newest_limit_bytes,
            entries: Mutex::new(kept),
        }
    }

    /// Calls `work` with the value of a key. Other callers for the same key wait meanwhile. If `work` takes the value out and
    /// panics, the value is lost. `bytes` returns the size of the value that `work` leaves.
    pub(super) fn update<T>(
        &self,
        key: &K,
        bytes: impl FnOnce(&V) -> usize,
        work: impl FnOnce(&mut Option<V>) -> T,
    ) -> T {
        let slot = self.slot(key);
        let mut known = slot.lock().unwrap_or_else(PoisonError::into_inner);
        let told = work(&mut known);
        let bytes = known.as_ref().map(bytes);
        drop(known);
        self.record_size(key, &slot, bytes);
        told
    }

    /// The value of a key. Does not count as a use.
    pub(super) fn get(&self, key: &K) -> Option<Slot<V>> {
        self.lock().by_key.get(key).map(|entry| Arc::clone(&entry.slot))
    }

    /// The values of all matching keys. Does not count as a use.
    pub(super) fn find(&self, is_wanted: impl Fn(&K) -> bool) -> Vec<Slot<V>> {
        let kept = self.lock();
        let wanted = kept.by_key.iter().filter(|(key, _)| is_wanted(key));
        wanted.map(|(_, entry)| Arc::clone(&entry.slot)).collect()
    }

    /// Removes the value of a key.
    pub(super) fn forget(&self, key: &K) {
        self.lock().remove(key);
    }

    /// The size of the cached values, in bytes.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.lock().bytes
    }

    /// The slot of a key. Counts as a use.
    pub(super) fn slot(&self, key: &K) -> Slot<V> {
        let mut entries = self.lock();
        entries.uses += 1;
        let last_use = entries.uses;
        let entry = entries.by_key.entry(key.clone()).or_insert_with(|| CachedValue {
            slot: Arc::default(),
            last_use,
            bytes: 0,
        });
        entry.last_use = last_use;
        Arc::clone(&entry.slot)
    }

    /// Records the size of an entry, and evicts others if the total is too large. Removes the entry if it has no value.
    fn record_size(&self, key: &K, slot: &Slot<V>, bytes: Option<usize>) {
        let mut entries = self.lock();
        let entries = &mut *entries;
        // The entry may have been evicted meanwhile, and another thread may have added it again.
        let cached = entries.by_key.get_mut(key);
        let Some(cached) = cached.filter(|cached| Arc::ptr_eq(&cached.slot, slot)) else {
            return;
        };
        let Some(bytes) = bytes else {
            entries.remove(key);
            return;
        };
        entries.bytes = entries.bytes - cached.bytes + bytes;
        cached.bytes = bytes;
        if entries.bytes <= self.limit_bytes {
            return;
        }
        let others = entries.by_key.iter().filter(|(other, _)| *other != key);
        let mut others: Vec<(u64, K)> = others.map(|(key, entry)| (entry.last_use, key.clone())).collect();
        others.sort_unstable_by_key(|(last_use, _)| *last_use);
        for (_, other) in others {
            // Evict more than necessary, so that the next call does not evict again.
            if entries.bytes <= self.limit_bytes / 4 * 3 {
                break;
            }
            entries.remove(&other);
        }
        if bytes > self.newest_limit_bytes {
            entries.remove(key);
        }
    }

    fn lock(&self) -> MutexGuard<'_, CacheEntries<K, V>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(cache: &Cache<u8, usize>, key: u8, bytes: usize) {
        cache.update(&key, |bytes| *bytes, |known| *known = Some(bytes));
    }

    fn keys(cache: &Cache<u8, usize>) -> Vec<u8> {
        let mut keys: Vec<u8> = cache.lock().by_key.keys().copied().collect();
        keys.sort_unstable();
        keys
    }

    #[test]
    fn what_was_used_least_recently_leaves_first() {
        // Three values fit. Adding a fourth evicts the oldest ones until at most three quarters of the limit are used.
        let cache = Cache::new(35, 35);
        for key in [0, 1, 2, 0, 3] {
            put(&cache, key, 10);
            assert!(cache.bytes() <= 35);
        }
        assert_eq!((keys(&cache), cache.bytes()), (vec![0, 3], 20));
    }

    #[test]
    fn what_does_not_fit_by_itself_stays_until_another_is_asked_for() {
        let cache = Cache::new(1, 10);
        put(&cache, 0, 10);
        assert_eq!(keys(&cache), [0]);
        put(&cache, 1, 10);
        assert_eq!(keys(&cache), [1]);
        put(&cache, 2, 11);
        assert_eq!((keys(&cache), cache.bytes()), (Vec::<u8>::new(), 0));
    }

    #[test]
    fn what_is_not_known_or_was_put_back_by_another_is_not_counted() {
        let cache = Cache::<u8, usize>::new(100, 100);
        cache.update(&0, |bytes| *bytes, |_| ());
        assert_eq!(keys(&cache), Vec::<u8>::new());
        cache.update(
            &0,
            |bytes| *bytes,
            |known| {
                cache.forget(&0);
                put(&cache, 0, 7);
                *known = Some(50);
            },
        );
        assert_eq!(cache.bytes(), 7);
    }
}
