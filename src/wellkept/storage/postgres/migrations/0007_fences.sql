-- A lease counts its holders: whoever had it before has a lower number and can be told apart after waking up late.
ALTER TABLE leases ADD COLUMN fence bigint NOT NULL DEFAULT 0;
