-- When the page's file was last written as a row was entered: the same moment still, and the row's page never came.
ALTER TABLE edits ADD COLUMN page_stamp INTEGER;
